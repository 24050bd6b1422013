"""What prompts are made of: their files, and the cards and tables that are filled in."""
