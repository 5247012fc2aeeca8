"""Execution of a plan in a folder by ninja, with progress. Imports `plan`."""
