"""Installations: facts are gathered, steps planned and applied. Imports `find` and what is below it."""
