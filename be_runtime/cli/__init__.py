"""The command line, `python -m be_runtime`."""
