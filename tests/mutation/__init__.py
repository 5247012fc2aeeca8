"""Changes of one line of the product, and whether the tests notice them."""
