"""The cache's folder: its location, its owner, the names in it, its locks. Imports `settings`."""
