"""C++ text to functions and their parameters. Imports nothing else of `spec`."""
