"""S3 by moto's server, and folders: a process of its own asks, since fsspec and its packages warn."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import jobs
from tests.support.faulty_server import faulty_server
from tests.support.runtime import environment, run_python

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")
SLACK_S = 10.0

BEGIN = """
import os, sys, time
from be_runtime.store.remote import FsspecCache
"""
USE = f"""{BEGIN}
import fsspec
fsspec.filesystem("s3").mkdir("bucket")
cache = FsspecCache("s3://bucket/kernels/", 30)
name, data = "ab" * 32, os.urandom(300_000)
assert cache.get(name) is None
cache.put(name, data)
assert cache.get(name) == data
assert fsspec.filesystem("s3").cat_file("bucket/kernels/be-1/ac/" + name) == data
child = os.fork()
if child == 0:
    ok = cache.get(name) == data
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0, "a forked process has a client of its own"
assert cache.get(name) == data
print("used")
"""
FAIL = f"""{BEGIN}
cache = FsspecCache("s3://bucket/kernels", float(sys.argv[1]))
began = time.monotonic()
try:
    print(cache.get("ab" * 32))
except Exception as error:
    print(type(error).__name__, error)
print(time.monotonic() - began)
"""
S3 = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    port = jobs.free_port(20_000, 60_000)
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, stdout=quiet, stderr=quiet, env=environment(**S3)) as process:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "moto's server has ended"
                assert time.monotonic() < until
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.mark.full
def test_what_is_put_can_be_got(s3: str):
    assert run_python(USE, env=environment(**S3, AWS_ENDPOINT_URL=s3)).stdout == "used\n"


@pytest.mark.full
@pytest.mark.parametrize("how", ["silent", "drip_head", "drip_body", "cut", "error500", "error403"])
def test_a_fault_takes_no_longer_than_allowed_and_does_not_keep_the_process(how: str):
    with faulty_server() as server:
        began = time.monotonic()
        env = environment(**S3, AWS_ENDPOINT_URL=f"{server.url}/{how}")
        told, took = run_python(FAIL, "3", env=env).stdout.splitlines()
        assert "rror" in told
        assert float(took) < 3 + SLACK_S
        assert time.monotonic() - began < 3 + 3 * SLACK_S


def test_a_folder_is_a_remote_cache_too(tmp_path: Path):
    use = f"""{BEGIN}
cache = FsspecCache("file://" + sys.argv[1], 30)
assert cache.get("ab" * 32) is None
cache.put("ab" * 32, b"data")
print(cache.get("ab" * 32), "s3fs" in sys.modules)
"""
    assert run_python(use, str(tmp_path / "remote")).stdout == "b'data' False\n"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ab" * 32]
