"""`python -m bench.airflow.pod_start`: from the start of a serving pod until Triton is ready, with weights in S3.

Slipway's init container fetches the repository, verifies every digest, and Triton reads it from the disk. The peer is
Triton's own way, `--model-repository=s3://...`, which verifies nothing. Both read the same objects of `rclone serve s3`
on loopback, and the model reads none of its weights, so that what is compared is how they come. They take turns; once
as fast as loopback is, and once with CONNECTION_MB_S for each connection.
"""

import argparse
import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median

from bench.transfer.transfer import FETCH, Bench
from bench.transfer.transfer_servers import CREDENTIALS, ENVIRONMENTS, MB, hub, object_store, write_file

SIZES = {
    "small": {"8x64MB": (8, 64 * MB)},
    "full": {"1x4GB": (1, 4000 * MB), "8x512MB": (8, 512 * MB)},
}
CONNECTION_MB_S = 90
"""What S3 gives one connection ("Performance design patterns", docs.aws.amazon.com/AmazonS3/latest/userguide)."""
GOAL = 3.0
READY_S = 300
MODEL, TRITON = "weights", ENVIRONMENTS / "triton" / "bin" / "tritonserver"
CONFIG = """
backend: "python"
instance_group [{ kind: KIND_CPU count: 1 }]
input [{ name: "input" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "output" data_type: TYPE_INT32 dims: [ 1 ] }]
"""
CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


def main() -> int:
    """Print a line for each set of files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where all files are kept; default: the system's temporary folder")
    arguments = parser.parse_args()
    os.environ.update(CREDENTIALS)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs; medians of {arguments.rounds} interleaved rounds")
    for name, (count, size_bytes) in SIZES[arguments.size].items():
        for mb_s in (None, CONNECTION_MB_S):
            with tempfile.TemporaryDirectory(prefix="slipway-bench-", dir=arguments.folder) as text:
                result = measured(Path(text), count, size_bytes, mb_s, arguments.rounds)
            print(f"{name}, {f'{mb_s} MB/s a connection' if mb_s else 'loopback'}: {result}", flush=True)
    return 0


def measured(folder: Path, count: int, size_bytes: int, connection_mb_s: int | None, rounds: int) -> str:
    """Start a pod in both ways in turns, and compare the medians."""
    # Triton 2.51 signs in a way that rclone's server refuses, so this one asks for no signature
    with hub(folder, 0, 0) as hub_address, object_store(folder, signed=False, connection_mb_s=connection_mb_s) as store:
        bench = Bench(folder, hub_address, store)
        bench.publish(_repository(folder / "repository", count, size_bytes))
        shutil.rmtree(folder / "repository")
        s3 = bench.published_uri.replace("s3://", f"s3://{store}/")
        seconds: dict[str, list[float]] = {"triton": [], "slipway": []}
        for _ in range(rounds):
            seconds["triton"].append(_ready(s3, folder))
            command = bench.fetches()[FETCH]
            fetched_s = bench.run(command).seconds
            seconds["slipway"].append(fetched_s + _ready(str(folder / "to"), folder))
    theirs, ours = (median(each) for each in seconds.values())
    ratio = theirs / ours
    return (
        f"Triton's own S3 {theirs:.2f} s, fetch-repository and Triton {ours:.2f} s: {ratio:.2f}x "
        f"(goal {GOAL}x: {'met' if ratio >= GOAL else 'missed'})"
    )


def _repository(folder: Path, count: int, size_bytes: int) -> Path:
    version = folder / MODEL / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    (version / "model.py").write_text(CODE)
    for number in range(count):
        write_file(version / f"rank{number}.engine", size_bytes)
    return folder


def _ready(repository: str, folder: Path) -> float:
    """Seconds until Triton is ready with this repository.

    Raises:
        SystemExit: it is not after READY_S.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    listening = ["--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    temporary = Path(tempfile.mkdtemp(dir=folder))  # to which Triton downloads
    environment = {**os.environ, "TMPDIR": str(temporary)}
    began = time.perf_counter()
    with (folder / "triton.log").open("wb") as log:
        command = [str(TRITON), f"--model-repository={repository}", *listening]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        while not _answers(port):
            if process.poll() is not None or time.perf_counter() - began > READY_S:
                raise SystemExit(f"Triton did not start:\n{(folder / 'triton.log').read_text()[-2000:]}")
            time.sleep(0.02)
        return time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(temporary)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5):
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
