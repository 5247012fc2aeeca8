"""The commands of setuptools for a project with kernels: a wheel gets kernels and a tag, and an sdist the sources.

Editable installs build nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from setuptools import Command, Distribution
from setuptools.command.bdist_wheel import bdist_wheel

from be_runtime.ship.package_store import Package
from be_runtime.ship.wheel import (
    WheelOptions,
    build_kernels,
    errors_as_text,
    parse_options,
    place,
    platform_of,
    project_table,
    source_files,
    wheel_packages,
)
from be_runtime.store.index import INDEX

_KERNELS = "build_kernels"


class BuildKernels(Command):  # type: ignore[misc]
    """A part of the command ``build``; see `setuptools.command.build.SubCommand`."""

    description = "build the kernels of packages"
    user_options: ClassVar[list[tuple[str, str | None, str | None]]] = []

    def initialize_options(self) -> None:
        """Declare the attributes that setuptools sets later."""
        self.editable_mode = False
        self.build_lib = ""

    def finalize_options(self) -> None:
        """Set the folder of the wheel's files."""
        self.build_lib = self.get_finalized_command("build").build_lib

    def run(self) -> None:
        """Build the kernels into the folder of the wheel's files."""
        if not self.editable_mode:
            with errors_as_text():
                options = _options()
                for package, folder in self._folders(options).items():
                    build_kernels(package, options, folder)

    def platform(self) -> str:
        """Return the wheel's platform; empty if no kernels were built."""
        with errors_as_text():
            options = _options()
            folders = {package.name: folder for package, folder in self._folders(options).items()}
            is_built = all((folder / INDEX).is_file() for folder in folders.values())
            return platform_of(folders, options) if is_built else ""

    def get_source_files(self) -> list[str]:
        """List the sources for an sdist."""
        root = Path.cwd()
        with errors_as_text():
            return [file for package in wheel_packages(_options(), root) for file in source_files(package, root)]

    def get_outputs(self) -> list[str]:
        """Return no files, since their names are not known before the build."""
        return []

    def get_output_mapping(self) -> dict[str, str]:
        """Return no files, since an editable install has no links to files."""
        return {}

    def _folders(self, options: WheelOptions) -> Mapping[Package, Path]:
        return {package: Path(self.build_lib, place(package)) for package in wheel_packages(options, Path.cwd())}


class WheelOfKernels(bdist_wheel):  # type: ignore[misc]
    """A base class of the command ``bdist_wheel``, which sets the platform of a wheel with kernels."""

    def run(self) -> None:
        """Write a wheel whose files are for one platform."""
        self.root_is_pure = False
        # The command ``install`` calls this method when it chooses the folder of a wheel's files.
        self.distribution.has_ext_modules = lambda: True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag, which is for any Python unless the wheel also has extension modules."""
        python, abi, platform = super().get_tag()
        command: Any = self.get_finalized_command(_KERNELS)
        found = "" if self.root_is_pure else command.platform()
        if not found:
            return python, abi, platform
        return (python, abi, found) if self.distribution.ext_modules else ("py3", "none", found)


def add_commands(distribution: Distribution) -> None:
    """Add the commands for kernels to a project's commands."""
    build, wheel = (distribution.get_command_class(name) for name in ("build", "bdist_wheel"))
    distribution.cmdclass |= {
        _KERNELS: BuildKernels,
        "build": type("build", (build,), {"sub_commands": [*build.sub_commands, (_KERNELS, None)]}),
        "bdist_wheel": type("bdist_wheel", (WheelOfKernels, wheel), {}),
    }


def _options() -> WheelOptions:
    return parse_options(project_table(Path.cwd()), "tool.be-runtime")
