"""Stores of compiled code: artifacts, the cache, and the stores that share artifacts with other machines."""
