"""``python -m be_runtime``."""

import sys

from be_runtime.cli.main import main

sys.exit(main())
