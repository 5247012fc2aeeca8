"""Reader of C++ text that finds functions and their parameters. Imports nothing else of `spec`."""
