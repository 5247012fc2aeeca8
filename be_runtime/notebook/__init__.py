"""Notebooks: cells of C++ and CUDA, and errors as a notebook shows them."""
