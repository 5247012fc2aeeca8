"""Removal from the cache: entries by age and size, remains of builds. Imports `validity` and `folder`."""
