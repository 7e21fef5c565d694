"""Makes the Python environments from their lock files. Runs on a bare Python 3.11: standard library only.

    python3 -m local.environments airflow tasks triton local

An environment whose lock has not changed is left as it is. uv installs, from the indexes that pip is configured with
by environment; one folder holds everything: .slipway/envs.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
REQUIREMENTS = REPOSITORY / "requirements"
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
NAMES = ("airflow", "tasks", "triton", "modelopt", "local", "dev")
UV = "uv==0.13.8"
TORCH = "torch==2.13.0"
WITH_TORCH = ("tasks", "modelopt")
IMAGE_ONLY = "tasks-gpu"
"""Lock of what is laid over an image with a Python and a numpy of its own; no environment here."""
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PYTHON = (3, 11)
PYTHON_OF_LOCKS = ["--python-version", "3.11"]


class SetupError(Exception):
    """An environment cannot be made; the text says what to do."""


def main() -> int:
    """Make the environments named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="environments to make")
    parser.add_argument("--lock", action="store_true", help="write the lock files again instead")
    arguments = parser.parse_args()
    try:
        uv = installer()
        for name in arguments.names or ((*NAMES, IMAGE_ONLY) if arguments.lock else ()):
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
    if sys.version_info[:2] != PYTHON:
        raise SetupError(
            f"python is {sys.version.split()[0]}, the locks are for {PYTHON[0]}.{PYTHON[1]}. "
            f"Install python3.11 with its venv module and run `make PYTHON=python3.11 ...`."
        )
    home = ENVIRONMENTS / "uv"
    uv = home / "bin" / "uv"
    if not uv.exists():
        _run([sys.executable, "-m", "venv", str(home)], "python3 -m venv failed; on Debian: apt install python3-venv")
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV]
        _run(pip, f"pip could not install {UV}; is a package index reachable?")
    return uv


def make(uv: Path, name: str) -> None:
    """Make one environment unless its lock is what it was made from."""
    target = ENVIRONMENTS / name
    stamp, wanted = target / "made-from", _digest(name)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    began = time.monotonic()
    print(f"environments: making {name} ...", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    _run([str(uv), "venv", "--quiet", "--python", sys.executable, str(target)], f"cannot make {target}")
    install = [str(uv), "pip", "install", "--quiet", "--no-deps", "--python", str(target / "bin" / "python")]
    if name in WITH_TORCH:
        _install_torch(install)
    _run([*install, "--require-hashes", "-r", str(REQUIREMENTS / f"{name}.lock")], f"cannot install {name}.lock")
    if name == "triton":
        _run([*install, "--require-hashes", "-r", str(REQUIREMENTS / "triton-server.txt")], "cannot install Triton")
        python = str(target / "bin" / "python")
        _run([python, str(REPOSITORY / "images" / "triton-cpu" / "install_triton.py")], "cannot lay out Triton")
    stamp.write_text(wanted)
    print(f"environments: {name} made in {time.monotonic() - began:.0f} s", flush=True)


def lock(uv: Path, name: str) -> None:
    """Resolve an .in file into its lock."""
    source, target = REQUIREMENTS / f"{name}.in", REQUIREMENTS / f"{name}.lock"
    command = [str(uv), "pip", "compile", "--quiet", "--no-header", "--generate-hashes"]
    command += ["--python-version", "3.12", "--no-emit-package", "numpy"] if name == IMAGE_ONLY else PYTHON_OF_LOCKS
    command += ["--overrides", str(REQUIREMENTS / "overrides.txt"), "--no-emit-package", "torch"]
    _run([*command, "-o", str(target), str(source)], f"cannot resolve {source.name}")


def _install_torch(install: list[str]) -> None:
    cpu_build = f"{TORCH}+cpu"
    if subprocess.run([*install, cpu_build], env=_environment(), capture_output=True, check=False).returncode:
        _run([*install, "--index-url", TORCH_CPU_INDEX, cpu_build], f"no index has {cpu_build}")


def _digest(name: str) -> str:
    parts = [REQUIREMENTS / f"{name}.lock"]
    if name == "triton":
        parts += [REQUIREMENTS / "triton-server.txt", REPOSITORY / "images" / "triton-cpu" / "install_triton.py"]
    digest = hashlib.sha256(f"{sys.version}{TORCH}".encode())
    for part in parts:
        digest.update(part.read_bytes())
    return digest.hexdigest()


def _environment() -> dict[str, str]:
    """The process's own, with pip's settings under the names that uv reads."""
    renamed = {"PIP_FIND_LINKS": "UV_FIND_LINKS", "PIP_INDEX_URL": "UV_INDEX_URL", "PIP_CERT": "SSL_CERT_FILE"}
    given = {theirs: os.environ[ours] for ours, theirs in renamed.items() if ours in os.environ}
    return {**given, **os.environ}


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, env=_environment(), check=False)
    if done.returncode:
        raise SetupError(f"{failure} (exit {done.returncode}: {' '.join(command[:4])} ...)")


if __name__ == "__main__":
    sys.exit(main())
