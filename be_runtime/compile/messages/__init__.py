"""What compilers said, as one error with hints. Imports nothing else of `compile`."""
