"""Bundles: compiled code with an index, as a package's folder and as an exported program hold it."""
