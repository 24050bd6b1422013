"""The assistant: understands what a person wants, by rules or with a language model."""
