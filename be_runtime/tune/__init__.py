"""Tuning: compile and time the configurations of a kernel once, and store the fastest for each device and size."""
