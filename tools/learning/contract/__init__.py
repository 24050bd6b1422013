"""The short contract: an answer is device code alone, and comments say how it is launched."""
