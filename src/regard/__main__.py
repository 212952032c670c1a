"""`python -m regard`."""

from regard.cli import main

main()
