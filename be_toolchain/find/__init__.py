"""What there is: candidates are searched, examined and chosen. Imports `rules` and what is below it."""
