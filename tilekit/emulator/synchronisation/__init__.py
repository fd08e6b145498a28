"""Barriers, mbarriers and cluster launch control."""
