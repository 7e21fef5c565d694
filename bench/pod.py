"""The processes of a serving pod without the pod: Triton over models of the benchmark, the front, and OpenAI's API."""

import http.client
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
ADDRESS = "127.77.0.15"  # its own, because the ports are those of serving pods
FRONT, DIRECT = {"http": 8000, "grpc": 8001}, {"http": 9000, "grpc": 9001}
READY_TIMEOUT_S, END_S = 60.0, 30.0
CONFIG = """
from pathlib import Path
from slipway.tasks.serving.rendered import front
print(front.config({address!r}, 3600, Path("k8s_manifests/serving")))
"""


@dataclass(frozen=True)
class Model:
    """A model of Triton's Python backend: its config.pbtxt and its model.py."""

    config: str
    code: str


@contextmanager
def pod(
    folder: Path, models: Mapping[str, Model | None], openai: Sequence[str] | None = None
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run the processes until the block ends, and yield them by name.

    Args:
        folder: a folder for the repository, logs and sockets.
        models: the models by name; one that is None lies in the folder's repository already.
        openai: further arguments of OpenAI's API; it is left out when None.
    """
    for name, model in models.items():
        if model is None:
            continue
        version = folder / "repository" / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(model.config)
        (version / "model.py").write_text(model.code)
    commands = {"triton": _triton(folder / "repository"), "front": _front()}
    if openai is not None:
        commands["openai"] = _openai(models, openai)
    started: dict[str, subprocess.Popen[bytes]] = {}
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                started[name] = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        paths = [f"/v2/models/{name}/ready" for name in models] + ["/v1/models"] * (openai is not None)
        _wait_ready(folder, paths)
        yield started
    finally:
        for process in reversed(started.values()):
            process.terminate()
        for process in started.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _triton(repository: Path) -> list[str]:
    listening = [
        f"--{name}-{key}={value}" for name in DIRECT for key, value in (("address", ADDRESS), ("port", DIRECT[name]))
    ]
    executable = ENVIRONMENTS / "triton" / "bin" / "tritonserver"
    return [str(executable), f"--model-repository={repository}", *listening, "--allow-metrics=false"]


def _front() -> list[str]:
    print_config = [str(ENVIRONMENTS / "tasks" / "bin" / "python"), "-c", CONFIG.format(address=ADDRESS)]
    config = subprocess.run(print_config, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    envoy = [str(ENVIRONMENTS / "front" / "bin" / "envoy"), "--disable-hot-restart", "--concurrency", "2"]
    return [*envoy, "--log-level", "warning", "--config-yaml", config]


def _openai(models: Mapping[str, Model | None], further: Sequence[str]) -> list[str]:
    python = str(ENVIRONMENTS / "triton" / "bin" / "python")
    named = [f"--model={name}" for name in models]
    where = ["--socket=openai.sock", f"--triton-host={ADDRESS}", f"--triton-port={DIRECT['http']}"]
    return [python, "-m", "slipway.tasks", "openai", *where, "--release=bench", *named, *further]


def _wait_ready(folder: Path, paths: Sequence[str]) -> None:
    """Wait until every path answers through the front."""
    deadline, unanswered = time.monotonic() + READY_TIMEOUT_S, list(paths)
    while unanswered and time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection(ADDRESS, FRONT["http"], timeout=5)
            connection.request("GET", unanswered[0])
            if connection.getresponse().status == http.client.OK:
                del unanswered[0]
                continue
        except OSError:
            pass
        time.sleep(0.2)
    if unanswered:
        logs = "\n".join(log.read_text()[-1500:] for log in folder.glob("*.log"))
        raise SystemExit(f"{unanswered[0]} did not answer after {READY_TIMEOUT_S:.0f} s:\n{logs}")
