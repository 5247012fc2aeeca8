"""The command `cache`: list, explain, check and remove compiled kernels, and move them between machines."""
