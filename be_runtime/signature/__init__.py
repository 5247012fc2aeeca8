"""Signatures of entry points: the arg_spec, and C++ sources. Pure."""
