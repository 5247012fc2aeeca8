"""The command line, `python -m be_toolchain`. Imports everything else."""
