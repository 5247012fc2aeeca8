"""Installations: facts are gathered, steps planned and applied. Imports `find` and the layers below it."""
