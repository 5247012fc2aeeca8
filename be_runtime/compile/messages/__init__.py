"""Messages of compilers and linkers, as one error with hints. Imports nothing else of `compile`."""
