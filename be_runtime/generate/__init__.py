"""Entry points to C++ text, and to the table of what a module offers. Pure. Imports `spec` and `request`."""
