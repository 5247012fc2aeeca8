"""Exported programs that carry their kernels: made, written to one file, and loaded."""
