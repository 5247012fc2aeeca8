"""Several test processes share one device, so none may reserve its memory."""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

collect_ignore = ["sources/languages"]
