"""The way of one load: session, key, prebuilt folder, cache, build, registration. Imports `compile` and `xla`."""
