"""Find everything that compiling CUDA and C++ needs on this machine, and return it as one value.

``__init__.pyi`` declares the public names for type checkers.
"""

# Nothing but sys, which is built in, is imported here, not even __future__: with -m the working folder is still first
# on the path, see __main__.
import sys

if sys.platform != "linux":  # pip installs a wheel of pure Python anywhere
    raise ImportError(
        f"brainevent-toolchain runs on Linux only, and this is {sys.platform}: "
        "use WSL 2 on Windows, a Linux container or virtual machine on macOS"
    )

__version__ = "0.1.0"

_HOMES = {
    "be_toolchain.arch": "Arch gencode_flags parse_archs",
    "be_toolchain.errors": "ToolchainError",
    "be_toolchain.find.devices": "Device DeviceReport probe_devices",
    "be_toolchain.find.record": "device_archs resolve",
    "be_toolchain.values": "Component CudaToolkit HostCompiler Toolchain ToolchainRequest check_archs",
}
"""Public names by their modules, which are imported on first use."""

__all__ = ["__version__"]
__all__ += [name for names in _HOMES.values() for name in names.split()]


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    home = next((home for home, names in _HOMES.items() if name in names.split()), "")
    if not home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, whether they are imported already or not."""
    return sorted({*globals(), *__all__})
