"""Plug-ins of build backends: a package's kernels get into its wheel."""
