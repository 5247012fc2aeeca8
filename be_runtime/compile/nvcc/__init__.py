"""CUDA by nvcc: its phases as edges, and what is kept of CUDA's headers. Imports `run`, `inputs` and `plan`."""
