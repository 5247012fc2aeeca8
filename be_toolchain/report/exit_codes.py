"""The exit codes of the command line."""

WORKS, NO_CUDA, NO_CXX, INTERNAL = 0, 1, 2, 3
"""Everything works; CUDA code can't be built; C++ code can't be built; a defect of be_toolchain."""

USAGE_ERROR = 64
"""The arguments are invalid (``EX_USAGE``)."""

NOT_WRITTEN = 74
"""The output can't be written, as on a full disk (``EX_IOERR``)."""

INTERRUPTED_BY_USER, READER_GONE = 130, 141
"""Ctrl-C was pressed; the reader of the output, such as ``head``, has ended. Shells use these codes for signals."""
