"""Peers besides the array library, one file each: ``ENTRANTS`` takes part, ``ABOUT`` has the versions."""
