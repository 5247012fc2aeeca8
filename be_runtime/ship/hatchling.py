"""The build hook of hatchling, ``[tool.hatch.build.targets.wheel.hooks.be-runtime]``: kernels and a tag for wheels.

Editable installs and sdists are not changed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from be_runtime.ship.wheel import (
    build_kernels,
    errors_as_text,
    files_below,
    kernels_folder,
    parse_options,
    place,
    platform_of,
    wheel_packages,
)


class KernelsHook(BuildHookInterface[Any]):  # type: ignore[misc]
    """Builds the kernels of a wheel."""

    PLUGIN_NAME = "be-runtime"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the kernels, and add them and the tag to the wheel."""
        if self.target_name != "wheel" or version == "editable":
            return
        with errors_as_text():
            options = parse_options(self.config, "tool.hatch.build.targets.wheel.hooks.be-runtime")
            # The object, and so its folder, exists as long as this hook.
            self._built = tempfile.TemporaryDirectory(prefix="be-wheel-")
            folders = {}
            for package in wheel_packages(options, Path(self.root)):
                folders[package.name] = folder = Path(self._built.name, package.name)
                build_kernels(package, options, folder)
                kernels = place(package)
                # Kernels that a developer built in the package's folder stay out of the wheel.
                self.build_config.build_reserved_paths.update(
                    f"{kernels}/{file}" for file in files_below(kernels_folder(package))
                )
                build_data["force_include"] |= {str(folder / file): f"{kernels}/{file}" for file in files_below(folder)}
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_of(folders, options)}"


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_build_hook() -> type[KernelsHook]:
    """Return the hook for hatchling."""
    return KernelsHook
