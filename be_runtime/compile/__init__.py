"""The making of a module: a graph of commands, run and recorded. Imports `generate`, `cache` and what is below them."""
