"""Builds the Python environments from their lock files. Runs on any Python from 3.11, with the standard library only.

    python3 -m local.environments airflow tasks triton front local

The locks are for CPython 3.11 on Linux x86-64. If another Python runs this, uv finds a 3.11 on the machine, or
downloads one into .slipway/python. An environment whose lock has not changed is kept. uv installs from the indexes that
environment variables configure for pip. All environments are in .slipway/envs.
"""

import argparse
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
REQUIREMENTS = REPOSITORY / "requirements"
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
DOWNLOADED = REPOSITORY / ".slipway" / "python"
NAMES = (
    "airflow",
    "tasks",
    "triton",
    "front",
    "modelopt",
    "transformers4",
    "harness",
    "clients",
    "peers",
    "local",
    "dev",
)
UV = "uv==0.13.8"
TORCH = "torch==2.13.0"
WITH_TORCH = ("tasks", "modelopt")
OF_PODS = ("tasks", "triton", "modelopt", "harness")
"""Compiled on installation, as pip does in an image: a pod cannot write bytecode to its read-only root."""
NOT_OURS = ["--overrides", str(REQUIREMENTS / "of-the-image.txt"), "--no-emit-package", "scipy"]
IMAGE_ONLY = {
    "tasks-gpu": ("tasks-gpu", ["--no-emit-package", "numpy"]),
    "tensorrt-llm": ("tensorrt-llm", ["--no-deps"]),
    "modelopt-gpu": ("modelopt", [*NOT_OURS, "--no-emit-package", "numpy"]),
}
"""Locks of packages that are added to images with their own Python 3.12, each with its .in file and further options. No
environment is built from them here."""
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OLDEST_PYTHON = (3, 11)
PYTHON_OF_LOCKS = "3.11"
PLATFORM = ("Linux", "x86_64")
PYTHON_OF_IMAGES = "3.12"


class SetupError(Exception):
    """An environment cannot be built; the text says what to do."""


def main() -> int:
    """Build the environments named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, *IMAGE_ONLY, []], help="environments to build")
    parser.add_argument("--lock", action="store_true", help="write the lock files instead")
    arguments = parser.parse_args()
    try:
        uv = installer()
        for name in arguments.names or ((*NAMES, *IMAGE_ONLY) if arguments.lock else ()):
            if arguments.lock:
                lock(uv, name)
            else:
                make(uv, name)
    except SetupError as error:
        print(f"environments: {error}", file=sys.stderr)
        return 1
    return 0


def installer() -> Path:
    """The uv executable, in an environment of its own."""
    if (found := (platform.system(), platform.machine())) != PLATFORM:
        raise SetupError(
            f"wrong machine: found {' '.join(found)}, expected {' '.join(PLATFORM)}. Use docker-compose.yaml with "
            "Docker on x86-64, or a cluster with x86-64 nodes (docs/cluster-setup.md). The slipway command itself runs "
            "anywhere: pipx install ."
        )
    if sys.version_info < OLDEST_PYTHON:
        raise SetupError(
            f"wrong Python: found {platform.python_version()}, expected 3.11 or later. "
            "Install one with its venv module and run `make PYTHON=python3.12 ...`."
        )
    # the folder will hold buckets, passwords and models, which are for this user only
    ENVIRONMENTS.parent.mkdir(exist_ok=True, mode=0o700)
    ENVIRONMENTS.parent.chmod(0o700)
    home = ENVIRONMENTS / "uv"
    uv = home / "bin" / "uv"
    if not uv.exists():
        _run([sys.executable, "-m", "venv", str(home)], "python3 -m venv failed; on Debian: apt install python3-venv")
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV]
        _run(pip, f"pip could not install {UV}; is a package index reachable?")
    return uv


@functools.cache
def interpreter(uv: Path) -> tuple[str, str]:
    """The path of the Python for which the locks are, and its version."""
    if platform.python_version().startswith(f"{PYTHON_OF_LOCKS}."):
        return sys.executable, sys.version
    path = _found(uv)
    if path is None:
        print(f"environments: downloading Python {PYTHON_OF_LOCKS} ...", flush=True)
        _run(
            [str(uv), "python", "install", "--quiet", "--no-bin", "--install-dir", str(DOWNLOADED), PYTHON_OF_LOCKS],
            f"no Python {PYTHON_OF_LOCKS} was found, and none could be downloaded: install it, or set "
            "UV_PYTHON_INSTALL_MIRROR",
        )
        path = _found(uv)
        assert path is not None
    asked = subprocess.run([path, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=True)
    return path, asked.stdout.strip()


def _found(uv: Path) -> str | None:
    """A Python for the locks on this machine, or the one that was downloaded before."""
    command = [str(uv), "python", "find", "--no-project", "--system", "--no-python-downloads", PYTHON_OF_LOCKS]
    environment = _environment() | {"UV_PYTHON_INSTALL_DIR": str(DOWNLOADED)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def make(uv: Path, name: str) -> None:
    """Build one environment unless it was already built from its current lock."""
    if name in IMAGE_ONLY:
        raise SetupError(f"{name} is added to an image and is not an environment here. Give --lock to resolve it.")
    target, (python, version) = ENVIRONMENTS / name, interpreter(uv)
    stamp, digest = target / "made-from", _digest(name, version)
    if stamp.exists() and stamp.read_text() == digest:
        return
    started_at = time.monotonic()
    print(f"environments: building {name} ...", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    _run([str(uv), "venv", "--quiet", "--python", python, str(target)], f"cannot create {target}")
    install = [str(uv), "pip", "install", "--quiet", "--no-deps", "--python", str(target / "bin" / "python")]
    if name in WITH_TORCH:
        _install_torch(install)
    last = [*install, "--compile-bytecode"] if name in OF_PODS else install
    if name == "triton":
        _run([*install, "--require-hashes", "-r", str(REQUIREMENTS / "triton-server.txt")], "cannot install Triton")
    _run([*last, "--require-hashes", "-r", str(REQUIREMENTS / f"{name}.lock")], f"cannot install {name}.lock")
    if name == "triton":
        own = str(target / "bin" / "python")
        _run([own, str(REPOSITORY / "images" / "triton-cpu" / "install_triton.py")], "cannot lay out Triton")
    stamp.write_text(digest)
    print(f"environments: {name} built in {time.monotonic() - started_at:.0f} s", flush=True)


def lock(uv: Path, name: str) -> None:
    """Resolve an .in file into its lock."""
    stem, options = IMAGE_ONLY.get(name, (name, []))
    source, target = REQUIREMENTS / f"{stem}.in", REQUIREMENTS / f"{name}.lock"
    command = [str(uv), "pip", "compile", "--quiet", "--no-header", "--generate-hashes", *options]
    command += ["--python-version", PYTHON_OF_IMAGES if name in IMAGE_ONLY else PYTHON_OF_LOCKS]
    command += ["--overrides", str(REQUIREMENTS / "overrides.txt"), "--no-emit-package", "torch"]
    _run([*command, "-o", str(target), str(source)], f"cannot resolve {source.name}")


def _install_torch(install: list[str]) -> None:
    cpu_build = f"{TORCH}+cpu"
    if subprocess.run([*install, cpu_build], env=_environment(), capture_output=True, check=False).returncode:
        _run([*install, "--index-url", TORCH_CPU_INDEX, cpu_build], f"no index has {cpu_build}")


def _digest(name: str, version: str) -> str:
    parts = [REQUIREMENTS / f"{name}.lock"]
    if name == "triton":
        parts += [REQUIREMENTS / "triton-server.txt", REPOSITORY / "images" / "triton-cpu" / "install_triton.py"]
    digest = hashlib.sha256(f"{version}{TORCH}{'compiled' if name in OF_PODS else ''}".encode())
    for part in parts:
        digest.update(part.read_bytes())
    return digest.hexdigest()


def _environment() -> dict[str, str]:
    """This process's environment, with pip's settings also under the names that uv reads."""
    renamed = {"PIP_FIND_LINKS": "UV_FIND_LINKS", "PIP_INDEX_URL": "UV_INDEX_URL", "PIP_CERT": "SSL_CERT_FILE"}
    given = {theirs: os.environ[ours] for ours, theirs in renamed.items() if ours in os.environ}
    return {**given, **os.environ}


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, env=_environment(), check=False)
    if done.returncode:
        raise SetupError(f"{failure} (exit {done.returncode}: {' '.join(command[:4])} ...)")


if __name__ == "__main__":
    sys.exit(main())
