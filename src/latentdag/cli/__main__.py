"""``python -m latentdag.cli``."""

from latentdag.cli import main

main()
