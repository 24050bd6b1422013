"""What several roles share: attributes, steering, citations, and what is written first."""
