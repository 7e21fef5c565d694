"""`python -m bench.airflow.plan`: how long `slipway plan FILE` takes for 200 files, against `hf download --dry-run`.

A local Hub serves the model, moto's S3 holds a live release of another revision of it with every stage stored, so that
plan finds what is stored, why the rest is not, and what making it took before. Both commands are processes of their own
that take turns; medians of ROUNDS are compared. `hf download --dry-run` only lists the same files: it is what a person
would otherwise ask, and shares interpreter, Hub client and network.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import yaml

from bench.transfer.transfer_servers import child, moto
from bench.waiting import wait_until
from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.base import canonical_json, read_contract
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import STAGES, Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.document_files import read_document

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ENVS = REPOSITORY / ".slipway" / "envs"
DEMO = REPOSITORY / "tests" / "fixtures" / "hub" / "slipway" / "demo-llama" / "v1"
FILES, ROUNDS, GOAL_S = 200, 5, 2.0
START_S = 30
REPO = "bench/many-files"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def main() -> int:
    """Print the medians, their ratio and the verdict."""
    os.environ |= CREDENTIALS
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as text, contextlib.ExitStack() as stack:
        folder = Path(text)
        hub = stack.enter_context(_hub(folder))
        site = _site(folder, hub, stack.enter_context(moto()))
        spec = _spec(folder)
        _go_live(_planned(folder, site, spec, "one"), site)
        commands: dict[str, list[str | Path]] = {
            "slipway plan": [
                REPOSITORY / "bin" / "slipway",
                "--site",
                site,
                "plan",
                spec,
                "--revision",
                "two",
                "--json",
            ],
            "hf download --dry-run": [
                ENVS / "tasks" / "bin" / "hf",
                "download",
                REPO,
                "--revision",
                "two",
                "--dry-run",
            ],
        }
        own = {"HOME": text, "PATH": os.environ["PATH"], "HF_ENDPOINT": hub, **CREDENTIALS}
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                taken[name].append(_timed(command, own))
    ours, peer = (median(seconds) for seconds in taken.values())
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}; median of {ROUNDS}")
    verdict = "met" if ours <= GOAL_S else "missed"
    print(f"slipway plan FILE of {FILES} files: {ours:.2f} s (goal {GOAL_S} s: {verdict})")
    print(f"hf download --dry-run of the same: {peer:.2f} s, ratio {ours / peer:.2f}")
    return 0


@contextlib.contextmanager
def _hub(folder: Path) -> Iterator[str]:
    """A Hub with two revisions of a model of FILES files, of which one differs; its address."""
    for revision, weights in (("one", b"1"), ("two", b"2")):
        shutil.copytree(DEMO, folder / "hub" / REPO / revision, ignore=shutil.ignore_patterns("*.safetensors"))
        shards = FILES - len(list((folder / "hub" / REPO / revision).iterdir()))
        for number in range(shards):
            content = weights if number == 0 else str(number).encode()
            name = f"model-{number + 1:05}-of-{shards:05}.safetensors"  # plan reads no others
            (folder / "hub" / REPO / revision / name).write_bytes(content * 64)
    revisions = [{"name": name, "files": name} for name in ("one", "two")]
    refs = {"branches": {"main": "one"}, "tags": {"one": "one", "two": "two"}}
    (folder / "hub" / REPO / "repository.yaml").write_text(yaml.safe_dump({"refs": refs, "revisions": revisions}))
    state = folder / "state"
    command: list[str | Path] = [
        ENVS / "local" / "bin" / "python",
        "-m",
        "local.hub",
        "--fixtures",
        folder / "hub",
        "--state",
        state,
    ]
    with child(command):
        wait_until((state / "server.json").exists, START_S)
        yield f"http://127.0.0.1:{json.loads((state / 'server.json').read_text())['port']}"


def _site(folder: Path, hub: str, store: str) -> Path:
    document = read_document(REPOSITORY / "sites" / "local.yaml")
    document |= {"hub": {"endpoint": hub}, "object_store": {"bucket": "slipway", "endpoint": store}}
    (folder / "site.yaml").write_text(yaml.safe_dump(document))
    return folder / "site.yaml"


def _spec(folder: Path) -> Path:
    document = read_document(REPOSITORY / "specs" / "demo.yaml")
    gate = {"smoke": document["gate"]["smoke"], "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}]}
    document |= {"name": "bench", "source": {"repo": REPO, "revision": "one"}, "gate": gate}
    (folder / "spec.yaml").write_text(yaml.safe_dump(document))
    return folder / "spec.yaml"


def _planned(folder: Path, site: Path, spec: Path, revision: str) -> Release:
    """The release that the step plan writes."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(REPOSITORY), **CREDENTIALS}
    step: list[str | Path] = [
        ENVS / "tasks" / "bin" / "python",
        "-m",
        "slipway.tasks",
        "plan",
        "--site",
        site,
        "--spec",
        spec,
    ]
    _timed([*step, "--run", "bench", "--revision", revision], own)
    store, layout = _store(site)
    result = json.loads(store.read_bytes(layout.plan("bench", "bench")))
    return Release.model_validate_json(store.read_bytes(result["release"]))


def _go_live(release: Release, site: Path) -> None:
    """Leave what a promoted release leaves: an artifact of every stage, and the channel."""
    store, layout = _store(site)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "file").write_bytes(hashlib.sha256(folder.encode()).digest())
        for stage in STAGES:
            ArtifactStore(store, layout, SystemClock()).store(
                stage, release.plan.stages[stage].key, Path(folder), inputs={}, producer={}, metrics={}, seconds=60
            )
    uri = layout.release("bench", release.id)
    channel = Channel(name="bench").promoted(release.id, uri, at=release.created_at, run="bench", keep=2)
    store.put_bytes(layout.channel("bench"), canonical_json(channel.model_dump(mode="json")))


def _store(site: Path) -> tuple[S3ObjectStore, Layout]:
    read = read_contract(Site, read_document(site), str(site))
    return S3ObjectStore(read.object_store), Layout(read.object_store.root)


def _timed(command: Sequence[str | Path], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
