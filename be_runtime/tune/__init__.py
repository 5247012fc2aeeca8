"""Tuning: configurations of a kernel are compiled and timed once, and the fastest is kept for a GPU and a size."""
