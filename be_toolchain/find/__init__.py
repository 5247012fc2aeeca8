"""The search: candidates are found, examined and chosen. Imports `settings` and the layers below it."""
