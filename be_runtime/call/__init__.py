"""Calls of entry points from Python: one signature gives shapes, checks, attributes and callables."""
