"""What the user wants: the project's file, the user's file, variables. Imports `known` and what is below it."""
