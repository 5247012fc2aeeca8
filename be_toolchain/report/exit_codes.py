"""What the command line's exit codes mean."""

WORKS, NO_CUDA, NO_CXX, INTERNAL = 0, 1, 2, 3
"""All works; CUDA builds can't; C++ builds can't; a defect of be_toolchain."""

USAGE_ERROR = 64
"""Arguments that mean nothing (``EX_USAGE``)."""

NOT_WRITTEN = 74
"""Output that can't be written, as on a full disk (``EX_IOERR``)."""

INTERRUPTED_BY_USER, READER_GONE = 130, 141
"""After Ctrl-C, and where what reads the output has ended, as ``head`` does: as shells have it for signals."""
