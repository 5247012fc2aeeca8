"""Sharing of compiled code between processes and machines: what a build would make may be somewhere already."""
