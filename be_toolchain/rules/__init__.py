"""What fits together: rules that judge values and touch nothing. Imports `settings` and what is below it."""
