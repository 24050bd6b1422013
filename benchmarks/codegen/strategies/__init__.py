"""What `gpu_strategies.py` measures, and how: problems by kind, rounds of them, and a bench."""
