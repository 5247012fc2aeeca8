"""CUDA by clang: its phases as edges. Imports `run` and `plan`."""
