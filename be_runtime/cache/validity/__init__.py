"""Validity of entries: manifests, and checks of the recorded files. Imports `folder`."""
