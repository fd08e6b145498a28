"""Choosing configs by measurement, when the user asks: what the models of `tilekit.kernels` cannot know."""
