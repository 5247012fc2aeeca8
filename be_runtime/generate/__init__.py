"""Generation of C++ text and of a module's table of functions from entry points. Pure. Imports `spec` and `request`."""
