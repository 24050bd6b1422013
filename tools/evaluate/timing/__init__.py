"""How fast: stopwatches, cold caches, statistics, and the conditions they were taken under."""
