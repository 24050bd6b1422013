"""What the compiler offers a search: a task's forms, the options of each loop, candidates."""
