"""A release without its upload: made from a tagged clone, served by this machine, and used as README and pages say.

``make rehearsal`` runs this; pytest collects it only if it is named. Each command is printed as it is typed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import be_toolchain
from tests.packaging.wheel.test_authors import CALL, write
from tests.support.docker import ROOT, Engine, base_or_skip, engine_or_skip
from tests.support.file_server import serving

OLD = "8fe8844"
"""The commit whose wheel stands for an earlier release."""

AUTHORS_EXTRAS = {"dev", "docs", "packaging", "test"}
"""The extras of those who work on the project."""

PAGES = "\n".join(path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "docker/README.md"))
DOCTOR = "python -m be_toolchain doctor"
IMPORTS = "import jax, jax.numpy as jnp, be_runtime\n"
"""What a page has imported above the example."""
DEMO = "python demo.py --without-training"


class Program(NamedTuple):
    """The first Python example of a page, or the first one below some text."""

    page: str
    below: str = ""

    @property
    def code(self) -> str:
        """The example."""
        found = re.search(r"```python\n(.*?)```", (ROOT / self.page).read_text().partition(self.below)[2], re.DOTALL)
        assert found is not None
        return found[1]

    @property
    def printed(self) -> list[str]:
        """What its comments say that it prints."""
        return re.findall(r"^print\(.*\)  # (.*)$", self.code, re.MULTILINE)


README = Program("README.md", "# ")
PROGRAMS = {
    "readme.py": README,
    "numba_cpu.py": Program("docs/numba-cpu.md", "# "),
    "warp_kernel.py": Program("docs/custom-kernels.md", "## Warp"),
}


class User(NamedTuple):
    """Somebody with a home folder, a virtual environment, and access to package indexes.

    Parameters
    ----------
    home : Path
        The home folder, which is also the working folder.
    environ : dict of str to str
        All variables.
    """

    home: Path
    environ: dict[str, str]

    def types(self, command: str, **environ: str) -> str:
        """Run a command line; return what it printed."""
        print(f"\n$ {command}", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.home,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=850,
        )
        print(f"  {time.monotonic() - started:.0f} s, exit code {done.returncode}", flush=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def runs(self, name: str, **environ: str) -> None:
        """Run the example that has a name in `PROGRAMS`, and compare what it prints."""
        said = self.types(f"python {name}", **environ)
        printed = PROGRAMS[name].printed
        assert [" ".join(line.split()) for line in said.splitlines()[-len(printed) :]] == printed

    @property
    def files(self) -> set[str]:
        """The files of the home folder, and of the environment, that belong to the distribution or lie in a cache."""
        ours = re.compile(r"be_(toolchain|runtime)|be-(toolchain|runtime)|brainevent")
        return {str(path) for path in self.home.rglob("*") if ours.search(str(path.relative_to(self.home)))}


def told(command: str) -> str:
    """Return a command that README or a page has."""
    assert command in PAGES, f"no page says: {command}"
    return command


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A clone of the last commit, released: the next version, its changelog, its tag, the sdist and the wheels."""
    folder = tmp_path_factory.mktemp("release")
    tree = folder / "tree"
    maintainer = User(folder, os.environ | {"BE_SYSTEM_PYTHON": "1", "PYTHON": sys.executable})
    git = "git -c user.name=Rehearsal -c user.email=rehearsal@example.invalid"
    maintainer.types(f"git clone --quiet {shlex.quote(str(ROOT))} tree")
    python = shlex.quote(sys.executable)
    in_tree = maintainer._replace(home=tree, environ=maintainer.environ | {"PYTHONPATH": str(tree)})
    in_tree.types(f"{python} -m release prepare {next_version()}")
    in_tree.types(f"{git} commit --quiet --all --message 'Release {next_version()}' && {git} tag v{next_version()}")
    in_tree.types(f"{python} -m release check --tag v{next_version()}")
    in_tree.types("make dist")
    yield tree
    shutil.rmtree(folder)


def next_version() -> str:
    """Return the version that is rehearsed: the next minor one."""
    major, minor, _ = be_toolchain.__version__.split(".")
    return f"{major}.{int(minor) + 1}.0"


@pytest.fixture(scope="session")
def index(release: Path) -> Iterator[str]:
    """A package index that has the release alone."""
    with serving() as server:
        files = {path.name: path.read_bytes() for path in (release / "dist").iterdir()}
        server.files = {f"/brainevent-toolchain/{name}": content for name, content in files.items()}
        page = "".join(f'<a href="{name}">{name}</a>\n' for name in files)
        server.files["/brainevent-toolchain/"] = f"<!DOCTYPE html>\n{page}".encode()
        yield f"{server.url}/"


@pytest.fixture
def user(index: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a new virtual environment, and the examples of the pages in the home folder."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    asked = (sys.executable, "-m", "pip", "config", "get", "global.extra-index-url")
    others = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    environ = kept | {
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "PATH": f"{tmp_path}/env/bin:/usr/bin:/bin",
        "PIP_EXTRA_INDEX_URL": " ".join((*others, index)),
        "PIP_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "pip"),
        "PIP_QUIET": "1",
    }
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text((IMPORTS if "import jax" not in program.code else "") + program.code)
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    somebody = User(tmp_path, environ)
    somebody.types(f"{shlex.quote(sys.executable)} -m venv env")
    yield somebody
    shutil.rmtree(tmp_path)


def test_pip_alone(user: User):
    user.types(told("pip install brainevent-toolchain"))
    assert user.types("python -m be_toolchain --version") == f"be_toolchain {next_version()}\n"
    assert "builds can work here" in user.types(told(DOCTOR))
    user.runs("readme.py")
    user.types("python demo.py")
    shipped = user.types("python -c 'from be_runtime.load.identity import shipped_folder; print(shipped_folder())'")
    assert shipped.startswith(str(user.home)), "pip takes the wheel with compiled files"


@pytest.mark.parametrize(
    ("command", "nvcc"),
    [
        (told('pip install "brainevent-toolchain[cuda13]" "jax[cuda13]"'), "nvcc 13.0."),
        ('pip install "brainevent-toolchain[cuda13-newest]"', "nvcc 13.5."),
    ],
    ids=["cuda13", "cuda13-newest"],
)
def test_extras_with_nvcc(user: User, command: str, nvcc: str):
    user.types(command)
    said = user.types(DOCTOR)
    assert nvcc in said
    assert str(user.home / "env") in said.replace("~", str(user.home))
    assert "A CUDA kernel" in user.types(DEMO)


def test_the_extra_of_cuda_12_whose_wheels_have_no_nvcc(user: User):
    user.types('pip install "brainevent-toolchain[cuda12]"')
    assert "libdevice" in user.types("python -m be_toolchain doctor --json || true")
    user.runs("readme.py")


@pytest.mark.parametrize(("extra", "program"), [("numba", "numba_cpu.py"), ("warp", "warp_kernel.py")])
def test_extras_with_kernels_in_python(user: User, extra: str, program: str):
    user.types(f'pip install "brainevent-toolchain[{extra}]"')
    user.runs(program)


def test_extras_of_the_remote_cache(user: User):
    user.types(told('pip install "brainevent-toolchain[s3]"'))
    user.types(told('pip install "brainevent-toolchain[signing]"'))
    key = user.types(told("python -m be_runtime cache keygen --out be-cache.key")).partition("PUBLIC_KEY=")[2].strip()
    remote = {"BE_REMOTE_CACHE": f"file://{user.home}/remote", "BE_REMOTE_CACHE_PUBLIC_KEY": key}
    private = str(user.home / "be-cache.key")
    user.runs("readme.py", BE_CACHE_DIR="a", BE_REMOTE_CACHE_WRITE="1", BE_REMOTE_CACHE_PRIVATE_KEY=private, **remote)
    user.runs("readme.py", BE_CACHE_DIR="b", BE_JIT="never", **remote)


def test_the_extra_that_reads_device_code(user: User):
    user.types('pip install "brainevent-toolchain[cuda13]"')
    user.types(told("pip install 'brainevent-toolchain[inspect]'"))
    assert "cuobjdump" not in user.types("python -m be_runtime report csr.cu --arch 9.0")


def test_an_author_s_wheel(user: User):
    project = user._replace(home=user.home / "project")
    write(project.home, "hatchling.build")
    project.types(told("pip wheel . --no-deps"))
    user.types("pip install project/mykernels-1.0-py3-none-manylinux_*.whl")
    (user.home / "call.py").write_text(CALL)
    assert user.types("python call.py", BE_JIT="never", BE_CXX="/nowhere") == "[0.0, 1.0]\n"


@pytest.mark.parametrize("extra", sorted(AUTHORS_EXTRAS))
def test_extras_of_authors_can_be_solved(user: User, extra: str):
    user.types(f'pip install --dry-run "brainevent-toolchain[{extra}]"')


def test_every_extra_is_rehearsed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*project["optional-dependencies"]} == AUTHORS_EXTRAS | {
        *("cuda13", "cuda13-newest", "cuda12", "numba", "warp", "s3", "signing", "inspect", "build")
    }


def test_an_upgrade_keeps_programs_running_and_an_uninstall_leaves_nothing(user: User):
    user.types(f"git -C {shlex.quote(str(ROOT))} archive --prefix=old-tree/ {OLD} | tar x")
    user.types("pip wheel --no-deps -w old-wheel ./old-tree")
    user.types('pip install "$(ls old-wheel/*.whl)[cuda13]"')
    assert user.types("python -m be_toolchain --version") == "be_toolchain 0.1.0\n"
    (user.home / "old_demo.py").write_text((user.home / "old-tree" / "examples" / "demo.py").read_text())
    for name in ("old-tree", "old-wheel"):
        shutil.rmtree(user.home / name)
    user.runs("readme.py")
    old = user.types("python old_demo.py --without-training")

    user.types(told("pip install --upgrade brainevent-toolchain"))
    assert user.types("python -m be_toolchain --version") == f"be_toolchain {next_version()}\n"
    user.runs("readme.py")
    results = re.compile(r"^2 \* .*$", re.MULTILINE)
    assert results.findall(user.types("python old_demo.py --without-training")) == results.findall(old) != []
    assert "decay" in user.types(told("python -m be_runtime cache list"))
    assert "builds can work here" in user.types(DOCTOR)

    assert user.files
    for line in re.findall(r"^(?:pip uninstall|rm -rf).*", PAGES, re.MULTILINE):
        user.types(line.replace("pip uninstall", "pip uninstall --yes"))
    assert user.files == set()


def test_conda(release: Path, tmp_path_factory: pytest.TempPathFactory):
    from tests.packaging.conda.channels import lab
    from tests.support.requirements import missing_conda_tools

    reason = missing_conda_tools() or lab.missing()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("conda")
    told("conda install -c conda-forge brainevent-toolchain")
    made = lab.make_lab(folder, release)
    for spec, driver in (("brainevent-toolchain", None), ("brainevent-toolchain-cuda", "13.0")):
        print(f"\n$ conda install {spec}", flush=True)
        prefix, _ = made.install(spec, spec, driver=driver)
        path = f"{prefix.path}/bin:/usr/bin:/bin"
        user = User(prefix.home, {"HOME": str(prefix.home), "PATH": path, "LANG": "C.UTF-8"})
        (user.home / "readme.py").write_text(README.code)
        shutil.copy2(ROOT / "examples" / "demo.py", user.home)
        assert user.types("be-toolchain --version") == f"be_toolchain {next_version()}\n"
        part = r"C\+\+ compiler" if driver is None else "CUDA toolkit"
        (compilers,) = re.findall(rf".*{part}.*(?:\n .*)*", user.types(DOCTOR))
        assert str(prefix.path) in compilers
        user.runs("readme.py")
        user.types(DEMO)
    shutil.rmtree(folder)


engine = pytest.fixture(scope="session", name="engine")(engine_or_skip)
base = pytest.fixture(scope="session", name="base")(base_or_skip)


def test_docker(engine: Engine, base: str, release: Path, tmp_path: Path):
    here = {"DOCKER": engine.client, "PYTHON": sys.executable}
    maintainer = User(release, engine.environ | here)
    maintainer.types(f'{told("make docker")} DOCKER_ARGS="--base {base}"')
    maintainer.types(f"docker save be-image --output {tmp_path}/be-image.tar && docker image rm be-image")
    user = User(tmp_path, engine.environ)
    user.types("docker load --input be-image.tar")
    assert "builds can work here" in user.types(told("docker run --rm be-image doctor"))
    user.types("docker run --rm be-image python train.py")
    user.types(told("docker run --rm be-image python train.py").replace("--rm ", ""))
    assert f"be_toolchain {next_version()}" in user.types(f"docker run --rm be-image {DOCTOR}")
    assert "C++ kernel" in user.types("docker run --rm be-image python demo.py")
    (tmp_path / "my_script.py").write_text(README.code)
    said = user.types(told('docker run --rm --user "$(id -u)" -v "$PWD":/workspace be-image python my_script.py'))
    assert [" ".join(line.split()) for line in said.splitlines()] == README.printed
