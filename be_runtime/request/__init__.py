"""The checked request of a load, and the tools for its build."""
