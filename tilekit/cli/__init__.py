"""The ``tilekit`` command."""
