"""The cache's folder: where it is, whose it is, names in it, locks. Imports `settings`."""
