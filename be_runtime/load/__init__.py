"""The steps of a load: session, key, prebuilt folder, cache, build, registration. Imports `compile` and `jax`."""
