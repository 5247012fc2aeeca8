"""Stubs: the text of `.pyi` files, from entry points and from an author's Python module. Pure."""
