"""Debugging: sanitizers, live editing, reports."""
