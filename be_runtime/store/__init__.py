"""Stores of compiled code: the cache, bundles, and what processes and machines share."""
