"""``python -m be_toolchain``."""

import sys

from be_toolchain.cli import main

sys.exit(main())
