"""Lays Slipway's packages over an image that brings its own Python packages. Runs on the image's own `python3`.

    python3 lay_over.py --lock LOCK --to FOLDER [--repair LOCK] [--check MODULES] [--needs PROGRAMS] [--keep PROGRAMS]

FOLDER becomes a virtual environment that holds the lock's packages, with the image's own packages behind them. Its
only program is `python`, besides those in --keep. With FOLDER/bin first on PATH, `python` runs Slipway and `python3` is
still the image's interpreter, so the image's servers and tools never see Slipway's packages. The image's packages keep
their versions, except those that --repair replaces.

The script takes the location of the image's packages from the image's `python3`, because images differ. Triton's
-trtllm images keep them in the virtual environment /opt/venv-tritonserver (tensorrtllm_backend,
dockerfile/Dockerfile.triton.trt_llm_backend, r26.03 to r26.07), and the system's Python cannot import them. The -vllm
images and NGC PyTorch keep them in the system's dist-packages. `--system-site-packages` covers only the second case: an
environment made from a virtual environment sees the packages of the base Python, not those of that environment.

Standard library only.
"""  # noqa: INP001 - a script

import argparse
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REPAIRED = "tensorrt-llm"
"""Only images that hold this distribution are repaired."""
PROOF = "from openai.types.responses.response_content_part_added_event import PartReasoningText"
"""Line of tensorrt_llm/serve/responses_utils.py that fails with the openai of an unrepaired image."""
LINK = "image_packages.pth"
REDIRECTIONS = ("PIP_CONSTRAINT", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PYTHONPATH", "PYTHONHOME")
"""Variables that change which versions pip installs, or where. NGC images set PIP_CONSTRAINT to a list of their own."""


class LayerError(Exception):
    """The image is not as this script needs it; the text says what is missing."""


def main() -> int:
    """Lay the packages over the image; return 1 when the image lacks something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", type=Path, required=True, help="packages to install, with hashes")
    parser.add_argument("--to", type=Path, required=True, help="folder of the environment")
    parser.add_argument("--repair", type=Path, help=f"packages to replace in the image itself, if it has {REPAIRED}")
    for name, text in (
        ("--check", "modules that `python` must be able to import"),
        ("--needs", "programs that must be on PATH"),
        ("--keep", "programs of the lock's packages that stay on PATH"),
    ):
        parser.add_argument(name, type=_names, default=[], help=f"{text}, comma-separated")
    arguments = parser.parse_args()
    try:
        _check_programs(arguments.needs)
        if arguments.repair and _has(REPAIRED):
            install(Path(sys.executable), arguments.repair)
            _check(Path(sys.executable), PROOF)
        lay_over(arguments.to, arguments.lock, keep=arguments.keep)
        for module in arguments.check:
            _check(arguments.to / "bin" / "python", f"import {module}")
    except LayerError as error:
        print(f"lay_over: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    return 0


def lay_over(environment: Path, lock: Path, *, keep: Sequence[str]) -> None:
    """Make the environment and install the lock's packages in it; `keep` names programs that stay beside `python`.

    Raises:
        LayerError: pip failed.
    """
    venv.create(environment, clear=True, symlinks=True, with_pip=False)
    python = environment / "bin" / "python"
    install(python, lock)
    # after pip, which would otherwise count the image's packages as installed and skip the lock's
    _link(_site_packages(python), site.getsitepackages())
    interpreter = python.resolve()
    for program in (environment / "bin").iterdir():
        if program.name not in keep:
            program.unlink()
    python.symlink_to(interpreter)


def install(python: Path, lock: Path) -> None:
    """Install exactly the lock's packages for `python`, without dependencies, from files with the lock's hashes.

    Raises:
        LayerError: pip failed.
    """
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-cache-dir", "--no-deps"]
    done = subprocess.run([*pip, "--require-hashes", "-r", str(lock)], env=_environment(os.environ), check=False)  # noqa: S603 - pip
    if done.returncode:
        raise LayerError(
            f"pip could not install {lock.name} for {python} (exit {done.returncode}); see its output above."
        )


def _link(packages: Path, behind: Sequence[str]) -> None:
    """Append the folders to the environment's path, including what .pth files in them add."""
    text = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in behind)
    (packages / LINK).write_text(text, encoding="utf-8")


def _site_packages(python: Path) -> Path:
    return Path(json.loads(_run(python, "import json, site; print(json.dumps(site.getsitepackages()))").stdout)[0])


def _check_programs(names: Sequence[str]) -> None:
    missing = [name for name in names if shutil.which(name) is None]
    header = Path(sysconfig.get_path("include"), "Python.h")
    if "cc" in names and not header.exists():
        missing.append(str(header))
    if missing:
        raise LayerError(f"the image lacks {', '.join(missing)}. Choose a base image that has them.")


def _check(python: Path, statement: str) -> None:
    """Fail the image's build, rather than a model's, when the image is laid out differently."""
    done = _run(python, statement)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise LayerError(
            f"`{statement}` fails in {python}: {reason}. The image's packages are those of {sys.executable}, in "
            f"{', '.join(site.getsitepackages())}."
        )


def _run(python: Path, statement: str) -> subprocess.CompletedProcess[str]:
    words = [str(python), "-c", statement]
    return subprocess.run(words, env=_environment(os.environ), check=False, capture_output=True, text=True)  # noqa: S603 - a Python


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in own.items() if name not in REDIRECTIONS}


def _has(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    sys.exit(main())
