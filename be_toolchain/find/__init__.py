"""The search: candidates are found, examined and chosen. Imports `rules` and what is below it."""
