from be_toolchain.arch import Arch as Arch
from be_toolchain.arch import gencode_flags as gencode_flags
from be_toolchain.arch import parse_archs as parse_archs
from be_toolchain.errors import ToolchainError as ToolchainError
from be_toolchain.find.devices import Device as Device
from be_toolchain.find.devices import DeviceReport as DeviceReport
from be_toolchain.find.devices import probe_devices as probe_devices
from be_toolchain.find.record import device_archs as device_archs
from be_toolchain.find.record import resolve as resolve
from be_toolchain.values import Component as Component
from be_toolchain.values import CudaToolkit as CudaToolkit
from be_toolchain.values import HostCompiler as HostCompiler
from be_toolchain.values import Toolchain as Toolchain
from be_toolchain.values import ToolchainRequest as ToolchainRequest
from be_toolchain.values import check_archs as check_archs

__version__: str
__all__: list[str]
