"""`python -m coteach` is `coteach`."""

from coteach.cli import main

main()
