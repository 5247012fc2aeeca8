"""Parser of C++ text that finds functions and their parameters. Pure."""
