"""Barriers and mbarriers."""
