"""Find everything that compiling CUDA and C++ needs on this machine, and return it as one value."""

# Nothing but sys, which is built in, is imported here, not even __future__: with -m the working folder is still first
# on the path, see __main__.
import sys

TYPE_CHECKING = False  # type checkers take it for True; importing typing for it would be half of the import

if not TYPE_CHECKING and sys.platform != "linux":  # pip installs a wheel of pure Python anywhere
    raise ImportError(
        f"brainevent-toolchain runs on Linux only, and this is {sys.platform}: "
        "use WSL 2 on Windows, a Linux container or virtual machine on macOS"
    )

if TYPE_CHECKING:
    from be_toolchain.arch import Arch, gencode_flags, parse_archs
    from be_toolchain.errors import ToolchainError
    from be_toolchain.find.devices import Device, DeviceReport, probe_devices
    from be_toolchain.find.record import device_archs, resolve
    from be_toolchain.values import Component, CudaToolkit, HostCompiler, Toolchain, ToolchainRequest, check_archs

__version__ = "0.1.0"

_HOMES = {
    "arch": ("Arch", "gencode_flags", "parse_archs"),
    "errors": ("ToolchainError",),
    "find.devices": ("Device", "DeviceReport", "probe_devices"),
    "find.record": ("device_archs", "resolve"),
    "values": ("Component", "CudaToolkit", "HostCompiler", "Toolchain", "ToolchainRequest", "check_archs"),
}

__all__ = [
    "Arch",
    "Component",
    "CudaToolkit",
    "Device",
    "DeviceReport",
    "HostCompiler",
    "Toolchain",
    "ToolchainError",
    "ToolchainRequest",
    "__version__",
    "check_archs",
    "device_archs",
    "gencode_flags",
    "parse_archs",
    "probe_devices",
    "resolve",
]


def __getattr__(name: str) -> object:
    """Import a public name on its first use: importing the package alone stays cheap."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, whether they are imported already or not."""
    return sorted({*globals(), *__all__})
