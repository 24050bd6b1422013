"""What the commands do, one file a family; `ui.cli` says how they are called."""
