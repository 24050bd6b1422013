"""What a person sees in a conversation: a run as lines, plots and buttons, and answers."""
