"""``python -m tilekit`` is the ``tilekit`` command."""

from tilekit.cli import main

main()
