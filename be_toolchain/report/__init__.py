"""The doctor: what was found, judged and tried, as values and as text. Imports `find` and what is below it."""
