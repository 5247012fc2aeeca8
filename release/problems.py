"""The one error of this package."""

from __future__ import annotations


class ReleaseError(Exception):
    """Something stands against the release; the message says what to do."""
