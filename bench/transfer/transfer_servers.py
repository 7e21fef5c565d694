"""A Hub with one large model and an S3 server, on loopback, for benchmarks of transfers."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import yaml

from bench.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
DEMO = REPOSITORY / "tests" / "fixtures" / "hub" / "slipway" / "demo-llama" / "v1"
REPO = "bench/transfer"
MB = 10**6
BLOCK = 2**20
START_S = 180
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "benchbench",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextlib.contextmanager
def hub(folder: Path, count: int, size_bytes: int, mb_s: int | None = None) -> Iterator[str]:
    """A Hub with one model of `count` files of `size_bytes`, beside the demo's small ones; its address.

    `mb_s` bounds what it sends, in 10^6 bytes a second.
    """
    repository = folder / "hub" / REPO
    shutil.copytree(DEMO, repository / "one")
    for number in range(count):
        write_file(repository / "one" / f"model-{number:05}.safetensors", size_bytes)
    revisions = {"refs": {"branches": {"main": "one"}}, "revisions": [{"name": "one", "files": "one"}]}
    (repository / "repository.yaml").write_text(yaml.safe_dump(revisions))
    state = folder / "state"
    python = ENVIRONMENTS / "local" / "bin" / "python"
    limit = ["--bytes-per-s", str(mb_s * MB)] if mb_s else []
    with child([python, "-m", "local.hub", "--fixtures", folder / "hub", "--state", state, *limit]):
        wait_until((state / "server.json").exists, START_S)
        yield f"http://127.0.0.1:{json.loads((state / 'server.json').read_text())['port']}"


@contextlib.contextmanager
def object_store(
    folder: Path, *, signed: bool = True, mb_s: int | None = None, connection_mb_s: int | None = None
) -> Iterator[str]:
    """`rclone serve s3` over the folder `s3`; its address.

    `mb_s` bounds what it sends, and what it receives, and `connection_mb_s` what each answer and each object has of it,
    both in 2^20 bytes a second. With `signed`, requests need CREDENTIALS.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (folder / "s3").mkdir(exist_ok=True)
    serve: list[str | Path] = [peer("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    if signed:
        serve += ["--auth-key", f"{CREDENTIALS['AWS_ACCESS_KEY_ID']},{CREDENTIALS['AWS_SECRET_ACCESS_KEY']}"]
    if mb_s:
        serve += ["--bwlimit", f"{mb_s}M"]
    if connection_mb_s:
        serve += ["--bwlimit-file", f"{connection_mb_s}M"]
    # by default it reads a whole object for the ETag of its first answer, and digests again what it sends and receives,
    # all of it on cores that it shares with the client; S3 has cores of its own
    serve += ["--etag-hash", "", "--no-checksum", "--ignore-checksum", folder / "s3"]
    with child(serve):
        wait_until(lambda: accepts(port), START_S)
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """Moto's S3, in memory and in Python, with an empty bucket `slipway`; its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    endpoint, python = f"http://127.0.0.1:{port}", ENVIRONMENTS / "local" / "bin" / "python"
    with child([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]):
        wait_until(lambda: accepts(port), START_S)
        httpx.put(f"{endpoint}/slipway", timeout=START_S).raise_for_status()
        yield endpoint


def peer(name: str) -> Path:
    """A program of the environment `peers`.

    Raises:
        SystemExit: it is not installed.
    """
    path = ENVIRONMENTS / "peers" / "bin" / name
    if not path.exists():
        raise SystemExit(f"{path} is missing. Run `python3 -m local.environments peers`.")
    return path


def write_file(path: Path, size_bytes: int) -> None:
    """Write a file whose bytes no other file has."""
    start, block = os.urandom(32), os.urandom(BLOCK)
    with path.open("wb") as file:
        for offset in range(0, size_bytes, BLOCK):
            file.write((start + b"%016d" % offset + block)[: min(BLOCK, size_bytes - offset)])


@contextlib.contextmanager
def child(command: Sequence[str | Path]) -> Iterator[None]:
    """A server that runs until the block ends."""
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def accepts(port: int) -> bool:
    """Whether something listens on a loopback port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
