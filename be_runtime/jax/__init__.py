"""JAX and XLA: the only files that import jax."""
