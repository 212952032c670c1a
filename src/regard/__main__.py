"""`python -m regard`."""

from regard.cli.program import main

main()
