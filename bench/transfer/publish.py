"""`python -m bench.transfer.publish`: what it costs that a release's engine is stored twice.

Step publish has the store copy the engine's files under one prefix. The peers are `s5cmd cp` from prefix to prefix,
which the store copies too, and a manifest over the objects that exist already: a HEAD request for each
(docs/decisions/0034 says why it was not taken). Moto answers on loopback and copies in memory; Amazon S3 has its own
speed.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.transfer.transfer_servers import CREDENTIALS, MB, moto, peer, write_file
from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.site.site import ObjectStoreSite
from slipway.tasks.contracts.stored.artifact import Layout, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

SETS = {
    "small": {"8x64MB": (8, 64 * MB)},
    "full": {"8x512MB": (8, 512 * MB)},  # moto answers 500 to one file of 4 GB
}
BUILD, PUBLISH = "b" * 64, "e" * 64
LAYOUT = Layout("s3://slipway")


def main() -> int:
    """Print a table for each set of files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SETS, default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the files are made; default: the system's temporary folder")
    arguments = parser.parse_args()
    os.environ.update(CREDENTIALS)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs; medians of {arguments.rounds} interleaved rounds, over moto")
    for name, (count, size_bytes) in SETS[arguments.size].items():
        with tempfile.TemporaryDirectory(prefix="slipway-bench-", dir=arguments.folder) as text, moto() as endpoint:
            Copies(Path(text), endpoint, count, size_bytes).table(name, arguments.rounds)
    return 0


class Copies:
    """An engine in a store, and three ways to publish it."""

    def __init__(self, folder: Path, endpoint: str, count: int, size_bytes: int) -> None:
        self._endpoint = endpoint
        self._store = S3ObjectStore(ObjectStoreSite(bucket="slipway", endpoint=endpoint))
        self._artifacts = ArtifactStore(self._store, LAYOUT, SystemClock())
        engine = folder / "engine"
        engine.mkdir()
        for number in range(count):
            write_file(engine / f"rank{number}.engine", size_bytes)
        self._engine = self._artifacts.store("build", BUILD, engine, inputs={}, producer={}, metrics={}, seconds=0)
        shutil.rmtree(engine)

    def table(self, name: str, rounds: int) -> None:
        """Print the seconds and the stored bytes of each way."""
        ways: dict[str, Callable[[], object]] = {
            "publish: copies, each compared": self._compose,
            "s5cmd cp, prefix to prefix": self._s5cmd,
            "a HEAD for each object": self._heads,
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        stored: dict[str, int] = {}
        engine = self._stored()
        for _ in range(rounds):
            for way, run in ways.items():
                began = time.perf_counter()
                run()
                seconds[way].append(time.perf_counter() - began)
                stored[way] = self._stored()
                self._clear()
        print(f"\n{name}")
        for way, each in seconds.items():
            print(f"  {way:<32} {median(each):7.2f} s, stored {stored[way] / engine:.2f} times")
        ratio = median(seconds["s5cmd cp, prefix to prefix"]) / median(seconds["publish: copies, each compared"])
        print(f"  {ratio:.2f}x the speed of s5cmd cp, which compares nothing")

    def _compose(self) -> Manifest:
        return self._artifacts.compose("publish", PUBLISH, [(self._engine, "")], inputs={}, producer={}, metrics={})

    def _s5cmd(self) -> None:
        source, target = f"{LAYOUT.artifact('build', BUILD)}/*", f"{LAYOUT.artifacts()}copies/"
        subprocess.run(
            [peer("s5cmd"), "--endpoint-url", self._endpoint, "cp", source, target],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def _heads(self) -> None:
        for file in self._engine.files:
            self._store.describe(f"{LAYOUT.artifact('build', BUILD)}/{file.path}")

    def _stored(self) -> int:
        return sum(item.size_bytes for item in self._store.list(LAYOUT.artifacts()))

    def _clear(self) -> None:
        for prefix in ("publish/", "copies/"):
            self._store.delete([item.uri for item in self._store.list(f"{LAYOUT.artifacts()}{prefix}")])


if __name__ == "__main__":
    sys.exit(main())
