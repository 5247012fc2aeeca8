"""Builds: code is generated, planned, compiled and recorded."""
