"""What of a conversation survives: threads, steps, elements and files."""
