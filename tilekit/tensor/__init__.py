"""Layouts, swizzles and tiles: pure index algebra that every layer above shares. Emits nothing."""
