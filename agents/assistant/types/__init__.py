"""What the assistant speaks in: what it hears, commands, and answers made of pieces."""
