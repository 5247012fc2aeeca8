"""The user's settings: the project's file, the user's own file, variables. Imports `known` and what is below it."""
