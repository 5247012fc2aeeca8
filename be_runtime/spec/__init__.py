"""Entry points of a kernel's source. Pure."""
