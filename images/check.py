"""Runs each CPU image as a pod would: as the image's own user, without capabilities, network or a writable root.

    python3 images/check.py [--engine docker] [--registry slipway] [--version dev] [IMAGE ...]

Prints one line for each image, and exits 1 if one does not do its work. Standard library only.
"""  # noqa: INP001 - a script

import argparse
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TIMEOUT_S = 600


@dataclass(frozen=True)
class Check:
    """What shows that an image works."""

    program: str
    """Python that the image runs; it fails if anything is missing."""
    writable: tuple[str, ...]
    """Folders that a pod of it may write to."""
    mounts: tuple[str, ...] = ()
    """Folders of the repository that the image expects below /app, as a site mounts them."""


DAGS = """
import json, os, subprocess
os.environ["SLIPWAY_SITE"] = "/app/sites/kind.yaml"
os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = "sqlite:////tmp/airflow.db"
setting = ["airflow", "config", "get-value", "scheduler", "scheduler_idle_sleep_time"]
read = subprocess.run(setting, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
assert read[-1:] == ["0.1"], read
for command in ("db migrate", "dags reserialize"):
    subprocess.run(["airflow", *command.split()], check=True, stdout=subprocess.DEVNULL)
said = subprocess.run(["airflow", "dags", "list", "-o", "json"], check=True, stdout=subprocess.PIPE).stdout
found = [each["dag_id"] for each in json.loads(said.splitlines()[-1])]  # logs come before
assert any(each.startswith("release__") for each in found), found
print(len(found), "DAGs")
"""
STEPS = """
import importlib
import slipway.tasks.command, slipway.tasks.programs
from slipway.tasks.pod_processes import PROCESSES
for module in PROCESSES.values():
    importlib.import_module(module)
import blake3, cryptography.hazmat.primitives.asymmetric.ec
import boto3, huggingface_hub, nncf, openvino, optimum.intel, torch, transformers, tritonclient.grpc
assert torch.version.cuda is None, torch.version.cuda
print("torch", torch.__version__, "openvino", openvino.__version__.partition("-")[0])
"""
SERVER = """
import os, subprocess, time, urllib.request
import blake3, cryptography.hazmat.primitives.asymmetric.ec
import openvino_genai, slipway.tasks.serving.openai_api.application
os.mkdir("/tmp/models")
server = subprocess.Popen(["tritonserver", "--model-repository=/tmp/models", "--http-address=127.0.0.1",
                           "--grpc-address=127.0.0.1"], stderr=subprocess.DEVNULL)
try:
    for _ in range(300):
        try:
            urllib.request.urlopen("http://127.0.0.1:8000/v2/health/ready", timeout=2)
            break
        except OSError:
            assert server.poll() is None, f"tritonserver ended with {server.returncode}"
            time.sleep(0.2)
    else:
        raise SystemExit("tritonserver was not ready within 60 s")
finally:
    server.terminate()
    server.wait()
print("tritonserver is ready")
"""
CHECKS = {
    "airflow": Check(DAGS, ("/home/slipway/airflow/logs", "/tmp"), ("sites",)),  # noqa: S108 - the container's
    "tasks-cpu": Check(STEPS, ("/tmp",)),  # noqa: S108
    "triton-cpu": Check(SERVER, ("/tmp", "/dev/shm")),  # noqa: S108
}
USER = 'import os\nassert os.getuid() != 0, "runs as root"\n'
READ_ONLY = """
try:
    open("/app/probe", "w")
except OSError:
    pass
else:
    raise SystemExit("/app is writable")
"""


def main() -> int:
    """Check the images; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="*", choices=[*CHECKS, []], metavar="IMAGE", help=", ".join(CHECKS))
    parser.add_argument("--engine", default="docker", help="docker or podman, with any options of its own")
    parser.add_argument("--registry", default="slipway")
    parser.add_argument("--version", default="dev")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.images or CHECKS:
        image = f"{arguments.registry}/{name}:{arguments.version}"
        done = run(shlex.split(arguments.engine), image, CHECKS[name])
        said = (done.stdout.strip().splitlines() or [""])[-1]
        print(f"{image}: {said if done.returncode == 0 else f'failed with exit code {done.returncode}'}")  # noqa: T201
        if done.returncode:
            failed = True
            print(textwrap.indent(done.stderr.strip()[-4000:], "    "), file=sys.stderr)  # noqa: T201
    return 1 if failed else 0


def run(engine: list[str], image: str, check: Check) -> subprocess.CompletedProcess[str]:
    """The check's program in a container of the image."""
    command = [*engine, "run", "--rm", "--read-only", "--network=none", "--cap-drop=ALL"]
    command += ["--security-opt=no-new-privileges"]
    command += [f"--tmpfs={folder}:rw,mode=1777" for folder in check.writable]
    command += [f"--volume={REPOSITORY / folder}:/app/{folder}:ro" for folder in check.mounts]
    program = USER + READ_ONLY + check.program
    return subprocess.run(  # noqa: S603 - the engine that the caller named
        [*command, "--entrypoint=python", image, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
