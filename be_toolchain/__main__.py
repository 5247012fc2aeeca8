"""``python -m be_toolchain``."""

import os
import sys

try:
    # -m puts the working folder first: anybody who can write there could replace a module of Python's own.
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 - pathlib is not imported yet
        del sys.path[0]
except OSError:  # the folder is gone
    pass

from be_toolchain.cli.main import main

sys.exit(main())
