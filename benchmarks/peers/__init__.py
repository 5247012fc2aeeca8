"""Other ways from a kernel's source to a call in JAX, or in torch: their sources, and what their scripts share."""
