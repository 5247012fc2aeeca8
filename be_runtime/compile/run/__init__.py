"""Runs a plan in a folder, by ninja, and shows how far it is. Imports `plan`."""
