"""Drivers: the role loops that turn a spec's components into a complete kernel, written once."""
