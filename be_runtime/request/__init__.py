"""What a caller asks for, checked, and the tools that it takes. Imports `settings` and values."""
