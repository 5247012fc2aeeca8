"""How a module is made: the graph of commands, run and recorded. Imports `generate`, `cache` and what is below them."""
