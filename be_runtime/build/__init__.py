"""The build graph: planned as values, rendered for ninja, run in a folder."""
