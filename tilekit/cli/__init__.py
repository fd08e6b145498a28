"""The ``tilekit`` command."""

from tilekit.cli.app import main

__all__ = ["main"]
