"""A caller's request, checked, and the tools for it. Imports `settings` and values."""
