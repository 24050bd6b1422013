"""`python -m kernelwright`: the command line."""

from kernelwright.ui.cli.app import main

main()
