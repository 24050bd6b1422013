"""`python -m kernelwright.ui.cli.app`, where the command is not installed."""

from kernelwright.ui.cli.app import main

main()
