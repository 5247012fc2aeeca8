"""Tuning, which compiles and times the configurations of a kernel once, and stores the fastest for a GPU and a size."""
