"""Talking to language models: one question in, one reply out, whatever the server does."""
