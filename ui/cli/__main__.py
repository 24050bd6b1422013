"""`python -m ui.cli.app`, where the command is not installed."""

from ui.cli.app import main

main()
