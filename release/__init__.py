"""What a release is made with: reproducible files, the recipe for conda-forge, and checks that they say the same."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""
