"""Rules on whether parts fit together; they judge values and touch nothing. Imports `settings` and what is below it."""
