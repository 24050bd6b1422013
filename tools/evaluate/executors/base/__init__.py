"""What all executors have in common: the class to implement, its powers, and its questions."""
