"""A channel of names, versions and dependencies as conda-forge's feedstocks state them, without any files."""

from __future__ import annotations

from collections.abc import Iterator

from tests.packaging.conda.channels.channel import Channel, Package

PYTHONS = ("3.11.9", "3.12.8", "3.13.2")
JAX = "0.10.2"
GCC = ("13.4.0", "14.3.0", "15.2.0", "16.1.0")
CUDA = (("12.4", "12.4.131", 14), ("12.9", "12.9.86", 15), ("13.0", "13.0.88", 16), ("13.2", "13.2.78", 16))
"""Release, nvcc's version, and the first gcc that it does not take."""
JAXLIB_CUDA = (("12.9", 13), ("13.0", 14))
"""The releases that jaxlib is built with, and the first major release on which such a build does not run."""


def add_catalogue(channel: Channel) -> None:
    """Add every package that the recipe's outputs can draw in, in several versions."""
    for package in (*_pythons(), *_compilers(), *_cuda()):
        channel.add(package)


def _pythons() -> Iterator[Package]:
    for name in ("ninja", "numpy", "packaging", "platformdirs", "python-flatbuffers", "rich", "shtab"):
        yield Package(name, "99.0")
    yield Package("jax", JAX, ("python >=3.11", f"jaxlib >={JAX},<={JAX}"), noarch="generic")
    for version in PYTHONS:
        yield Package("python", version)
        minor = version.rpartition(".")[0]
        tag = f"py{minor.replace('.', '')}"
        yield Package("jaxlib", JAX, (f"python {minor}.*",), build=f"cpu_{tag}_0")
        for release, end in JAXLIB_CUDA:
            depends = (f"python {minor}.*", "__cuda", "cuda-nvcc-tools", f"cuda-version >={release},<{end}")
            build = f"cuda{release.replace('.', '')}_{tag}_200"
            yield Package("jaxlib", JAX, depends, build=build, number=200)


def _compilers() -> Iterator[Package]:
    for version in GCC:
        yield Package("gcc_impl_linux-64", version)
        yield Package("gcc_linux-64", version, (f"gcc_impl_linux-64 {version}.*",))
        yield Package("gxx_linux-64", version, (f"gcc_linux-64 {version}.*",))
        yield Package("gxx", version, (f"gxx_linux-64 {version}.*",))


def _cuda() -> Iterator[Package]:
    for release, version, first_refused in CUDA:
        major, minor = release.split(".")
        same = f"cuda-version >={release},<{major}.{int(minor) + 1}.0a0"
        gcc = (f"gcc_impl_linux-64 >=6,<{first_refused}.0a0",)
        yield Package("cuda-version", release, constrains=(f"__cuda >={major}",), noarch="generic")
        yield Package("cuda-nvcc-tools", version, (same,), gcc)
        yield Package("cuda-nvcc_linux-64", version, (same, f"cuda-nvcc-tools {version}.*"))
        depends = (same, f"cuda-nvcc_linux-64 {version}.*", "gcc_linux-64", "gxx_linux-64")
        yield Package("cuda-nvcc", version, depends)
        yield Package("cuda-cudart-dev", version, (same,))
