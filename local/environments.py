"""Builds the Python environments from their lock files. Runs on any Python from 3.11, with the standard library only.

    python3 -m local.environments local airflow tasks triton front

They are built side by side. `--then -m demo` runs a module of Python as soon as the environment `local` is built, while
the others are being built; it calls `wait_for` before it uses one of them.

The locks are for CPython 3.11 on Linux x86-64. The first optimized build among the one that runs this and those on the
machine is taken (docs/decisions/0053); without any 3.11, uv downloads one into .slipway/python. An environment whose
lock and Python have not changed is kept. uv installs from the indexes that environment variables configure for pip. All
environments are in .slipway/envs.
"""

import argparse
import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import itertools
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TextIO

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
    "docs",
    "helm",
    "vllm",
    "vllm-0.24.0",
    "vllm-0.27.1",
    "vllm-0.32.0",
    "xgrammar-0.1.25",
    "xgrammar-0.1.33",
    "xgrammar-0.2.1",
    "xgrammar-0.2.8",
)
UV = "uv==0.13.8"
TORCH = "torch==2.13.0"
WITH_TORCH = ("tasks", "modelopt", "vllm")
WITH_TRITON = ("triton", "vllm")
OF_PODS = ("tasks", "triton", "harness", "vllm")
"""Compiled, as pip does in an image: a pod cannot write bytecode to its read-only root, nor does the launcher of Triton
here."""
NOT_COMPILED = (
    r"/site-packages/(.+/)?(tests?|benchmarks?|kubernetes/aio|functorch|torchgen/(api|packaged)"
    r"|torch/(_vendor|testing|_inductor/\w+|distributed/(_tools|checkpoint|elastic|pipelining)|ao/(ns|quantization/fx))"
    r"|torch/utils/(hipify|tensorboard)|optimum/intel|nncf/onnx|transformers/(pipelines|cli|data)"
    r"|sympy/(physics|combinatorics|stats|vector|codegen|holonomic|diffgeom|categories|crypto|testing)"
    r"|scipy/(signal|io|cluster|_lib/(cobyqa|pyprima))|numpy/distutils|fsspec|cffi|pycparser|gevent/testing"
    r"|narwhals/_(pandas_like|arrow|polars|dask|spark_like|duckdb|ibis)|markdown_it|typer|pygments/lexers"
    r"|huggingface_hub/(inference|cli)|cryptography/x509)/"
    r"|/site-packages/transformers/models/(?!(auto|llama|clip|encoder_decoder|phi3|qwen3\w*|speecht5)/).+/"
    r"|/site-packages/torch/_inductor/(ir|scheduler|lowering|compile_fx|graph|pattern_matcher|codecache)\.py"
)
"""Half of the code: steps import none of it, or small files of it, which Python then compiles in memory. Where they may
write bytecode, they show what they import."""
COMPILED_LATER = (
    r"/site-packages/(torch|torchgen|sympy|mpmath|scipy|sklearn|transformers|optimum|nncf|networkx|onnx|openvino\w*"
    r"|great_expectations|pandas|altair|narwhals)/"
)
"""What no step imports before quantize: it is compiled while services start and the first steps run."""
COMPILE = """\
import compileall, re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
compileall.compile_dir(sys.argv[1], quiet=2, rx=re.compile(sys.argv[2]), workers=0)
"""
"""Ends with 0 although some packages ship files that no Python can compile, for which `python -m compileall` ends with
1, as it does when it is interrupted."""
RAN_OUT = "memory may have run out. Run the command again."
AT_ONCE = 2
"""Environments: one is downloaded while another one is compiled. Those named first are built first."""
SIGNALLED = 128
NOT_OURS = ["--overrides", str(REQUIREMENTS / "of-the-image.txt"), "--no-emit-package", "scipy"]
IMAGE_ONLY = {
    "tasks-gpu": ("tasks-gpu", ["--no-emit-package", "numpy"]),
    "tensorrt-llm": ("tensorrt-llm", ["--no-deps"]),
    "modelopt-gpu": ("modelopt", [*NOT_OURS, "--no-emit-package", "numpy"]),
}
"""Locks of packages that are added to images with their own Python 3.12, each with its .in file and further options. No
environment is built from them here."""
ADDED = {"airflow-image": "airflow"}
"""Locks of packages that an image has besides an environment, whose own lock has everything else that they need."""
PINNED_NAME = re.compile(r"(?m)^([A-Za-z0-9._-]+)==")
ALONE = tuple(name for name in NAMES if name.startswith(("vllm-", "xgrammar-")))
"""Environments whose lock has the packages of the .in file alone: vLLM is read, xgrammar imported beside `tasks`."""
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OLDEST_PYTHON = (3, 11)
PYTHON_OF_LOCKS = "3.11"
NAMED = "PYTHON"
"""The variable of `make PYTHON=...`, which names the Python that runs this: a 3.11 is then taken as it is."""
PROBE = """\
import ctypes, os, sys, sysconfig
options = sysconfig.get_config_var("CONFIG_ARGS") or ""
folders = sysconfig.get_config_var("LIBDIR"), sys.base_prefix + "/lib"
library = f"libpython{sysconfig.get_python_version()}.so.1.0"
usable, optimized = True, sys.base_prefix == "/usr" or "--enable-optimizations" in options
try:
    import bz2, lzma, sqlite3, ssl, zoneinfo
    any(os.path.exists(f"{folder}/{library}") for folder in folders) or ctypes.CDLL(library)
except (ImportError, OSError):
    usable = False
sys.stdout.write(f"{usable:d}{optimized:d} {sys.version}")
"""
"""What a Python says of itself: whether it has what Airflow and Triton need; whether its build is optimized, as
distributions' are and pyenv's are not (docs/decisions/0053); its version."""
BEST = "11"
DISTRIBUTION = Path("/usr/bin") / f"python{PYTHON_OF_LOCKS}"
PLATFORM = ("Linux", "x86_64")
PYTHON_OF_IMAGES = "3.12"
LAPTOP = "local"
"""Environment of the laptop's stack and of the demo."""
STAMP, COMPILED = "made-from", "compiled"
"""Files of an environment that can be used, and of one that is compiled as a whole."""


class SetupError(Exception):
    """An environment cannot be built; the text says what to do."""


def main() -> int:
    """Build the environments named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, *IMAGE_ONLY, *ADDED, []], help="environments to build")
    parser.add_argument("--lock", action="store_true", help="write the lock files instead")
    parser.add_argument("--then", nargs=argparse.REMAINDER, default=[], help="arguments of Python, as in `-m demo`")
    arguments = parser.parse_args()
    try:
        uv = installer()
        if arguments.lock:
            for name in arguments.names or (*NAMES, *IMAGE_ONLY, *ADDED):
                lock(uv, name)
            return 0
        return build(uv, list(dict.fromkeys(arguments.names)), arguments.then)
    except SetupError as error:
        print(f"environments: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT


def build(uv: Path, names: list[str], then: Sequence[str] = ()) -> int:
    """Build environments side by side, and run `then` in `local` beside the others; return the exit code of both.

    Raises:
        SetupError: one cannot be built; the text says what to do. None is begun after that.
    """
    interpreter(uv)
    with contextlib.ExitStack() as locks, ThreadPoolExecutor(AT_ONCE) as pool:
        held = {name: locks.enter_context(_lock(name)) for name in sorted(names)}
        if then:
            _make_locked(uv, LAPTOP, held.pop(LAPTOP))
        building = {name: pool.submit(_make_locked, uv, name, held[name]) for name in names if name in held}
        rest = [pool.submit(_compile_rest, name, built) for name, built in building.items() if name in OF_PODS]
        code = _exit_code([str(ENVIRONMENTS / LAPTOP / "bin" / "python"), *then]) if then else 0
        if code != SIGNALLED + signal.SIGINT:
            wait([*building.values(), *rest], return_when=FIRST_EXCEPTION)
        pool.shutdown(cancel_futures=True)
        for error in (future.exception() for future in building.values() if future.done() and not future.cancelled()):
            if error and code != SIGNALLED + signal.SIGINT:
                raise error
        return code


def _exit_code(command: list[str]) -> int:
    """Run a command, which gets the terminal's interrupts as this process does, and decides what follows from them."""
    with subprocess.Popen(command) as process:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()


def wait_for(*names: str) -> None:
    """Wait while a process builds these environments.

    Raises:
        SetupError: it could not build one of them.
    """
    for name in names:
        with _lock(name) as lock:
            if error := lock.read():
                raise SetupError(error)


def _lock(name: str) -> TextIO:
    """The file that whoever builds an environment holds, with the error of the last attempt. Closing it lets go."""
    stream = (ENVIRONMENTS / f".{name}.lock").open("a+")
    fcntl.flock(stream, fcntl.LOCK_EX)
    stream.seek(0)
    return stream


def _make_locked(uv: Path, name: str, lock: TextIO) -> None:
    """Build an environment, and let go of its lock."""
    with lock:
        lock.truncate(0)
        try:
            make(uv, name)
        except SetupError as error:
            lock.write(f"environment {name}: {error}")
            raise


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
    ENVIRONMENTS.mkdir(exist_ok=True)
    home = ENVIRONMENTS / "uv"
    uv = home / "bin" / "uv"
    with _lock("uv"):
        if not uv.exists():
            _install_uv(home)
    return uv


def _install_uv(home: Path) -> None:
    # a pip of its own takes longer to install than uv, and not every Python has one
    shared = importlib.util.find_spec("pip") is not None
    venv = [sys.executable, "-m", "venv", *(["--without-pip"] if shared else []), str(home)]
    _run(venv, "python3 -m venv failed; on Debian: apt install python3-venv")
    own = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(own)] if shared else [str(own), "-m", "pip"]
    install = [*pip, "--disable-pip-version-check", "install", "--quiet", UV]
    _run(install, f"pip could not install {UV}; is a package index reachable?")


@functools.cache
def interpreter(uv: Path) -> tuple[str, str]:
    """The path of the Python for which the locks are, and its version; one is downloaded if there is none.

    Raises:
        SetupError: there is none, and none could be downloaded.
    """
    own = [sys.executable] if platform.python_version().startswith(f"{PYTHON_OF_LOCKS}.") else []
    if own and NAMED in os.environ:
        return sys.executable, sys.version
    if python := _best(itertools.chain(own, [str(DISTRIBUTION)], _found(uv))):
        return python
    print(f"environments: downloading Python {PYTHON_OF_LOCKS} ...", flush=True)
    advice = "install it, or set UV_PYTHON_INSTALL_MIRROR"
    _run(
        [str(uv), "python", "install", "--quiet", "--no-bin", "--install-dir", str(DOWNLOADED), PYTHON_OF_LOCKS],
        f"no Python {PYTHON_OF_LOCKS} was found, and none could be downloaded: {advice}",
    )
    if python := _best(_found(uv)):
        return python
    raise SetupError(f"no Python {PYTHON_OF_LOCKS} was found, and the one in {DOWNLOADED} does not run: {advice}")


def _best(pythons: Iterable[str]) -> tuple[str, str] | None:
    """Path and version of the first usable optimized build, else of the first usable one, else of one that runs."""
    found = list[tuple[str, str, str]]()
    for path in pythons:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            told = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=True).stdout
            rank, _, version = told.partition(" ")
            found.append((rank, path, version))
            if rank == BEST:
                break
    rank, path, version = max(found, key=lambda each: each[0], default=("", "", ""))
    return (path, version) if rank else None


def _found(uv: Path) -> Iterator[str]:
    """The Pythons for the locks that were downloaded before, and those that uv knows on this machine."""
    yield from map(str, sorted(DOWNLOADED.glob(f"cpython-{PYTHON_OF_LOCKS}.*/bin/python{PYTHON_OF_LOCKS}")))
    command = [str(uv), "python", "list", "--only-installed", "--output-format", "json", f"cpython@{PYTHON_OF_LOCKS}"]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    yield from (each["path"] for each in (json.loads(done.stdout) if done.returncode == 0 else []))


def make(uv: Path, name: str) -> None:
    """Build one environment unless it was already built from its current lock."""
    if name in IMAGE_ONLY:
        raise SetupError(f"{name} is added to an image and is not an environment here. Give --lock to resolve it.")
    target, (python, version) = ENVIRONMENTS / name, interpreter(uv)
    stamp, digest = target / STAMP, _digest(name, version)
    # a Python that was downloaded into a checkout moves with it
    if stamp.exists() and stamp.read_text() == digest and (target / "bin" / "python").exists():
        return
    started_at = time.monotonic()
    print(f"environments: building {name} with {python} ...", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    # relocatable, because people move and rename checkouts
    _run([str(uv), "venv", "--quiet", "--relocatable", "--python", python, str(target)], f"cannot create {target}")
    install = [str(uv), "pip", "install", "--quiet", "--no-deps", "--python", str(target / "bin" / "python")]
    if name in WITH_TORCH:
        _install_torch(install)
    if name in WITH_TRITON:
        _run([*install, "--require-hashes", "-r", str(REQUIREMENTS / "triton-server.txt")], "cannot install Triton")
    _run([*install, "--require-hashes", "-r", str(REQUIREMENTS / f"{name}.lock")], f"cannot install {name}.lock")
    if name in WITH_TRITON:
        own = str(target / "bin" / "python")
        _run([own, str(REPOSITORY / "images" / "triton-cpu" / "install_triton.py")], "cannot lay out Triton")
    if name in OF_PODS and (code := _compile(target, f"{NOT_COMPILED}|{COMPILED_LATER}")):
        raise SetupError(f"cannot compile {target} (exit {code}): {RAN_OUT}")
    stamp.write_text(digest)
    print(f"environments: {name} built in {time.monotonic() - started_at:.0f} s", flush=True)


def lock(uv: Path, name: str) -> None:
    """Resolve an .in file into its lock."""
    stem, options = IMAGE_ONLY.get(name, (name, ["--no-deps"] if name in ALONE else []))
    source, target = REQUIREMENTS / f"{stem}.in", REQUIREMENTS / f"{name}.lock"
    command = [str(uv), "pip", "compile", "--quiet", "--no-header", "--generate-hashes", *options]
    command += ["--python-version", PYTHON_OF_IMAGES if name in IMAGE_ONLY else PYTHON_OF_LOCKS]
    command += ["--overrides", str(REQUIREMENTS / "overrides.txt"), "--no-emit-package", "torch"]
    if name in ADDED:
        lock_of_rest = REQUIREMENTS / f"{ADDED[name]}.lock"
        command += ["--constraint", str(lock_of_rest)]
        command += [f"--no-emit-package={package}" for package in PINNED_NAME.findall(lock_of_rest.read_text())]
    if (own := REQUIREMENTS / f"{name}-overrides.txt").exists():
        command += ["--overrides", str(own)]
    _run([*command, "-o", str(target), str(source)], f"cannot resolve {source.name}")


def _install_torch(install: list[str]) -> None:
    cpu_build = f"{TORCH}+cpu"
    if subprocess.run([*install, cpu_build], env=_environment(), capture_output=True, check=False).returncode:
        _run([*install, "--index-url", TORCH_CPU_INDEX, cpu_build], f"no index has {cpu_build}")


def _compile_rest(name: str, built: Future[None]) -> None:
    """Compile what is left of an environment once it can be used, behind everything else that runs."""
    target = ENVIRONMENTS / name
    if built.exception() is None and not (target / COMPILED).exists():
        code = _compile(target, NOT_COMPILED)
        if code == 0:
            (target / COMPILED).touch()
        elif code != -signal.SIGINT:
            print(f"environments: {name} is not compiled as a whole (exit {code}): {RAN_OUT}", file=sys.stderr)


def _compile(target: Path, left_out: str) -> int:
    """Store the bytecode of what a pod may import, behind services that start; 0 if that came to its end."""
    command = ["nice", "-n10", str(target / "bin" / "python"), "-c", COMPILE]
    return subprocess.run([*command, str(target / "lib"), left_out], check=False).returncode


def _digest(name: str, version: str) -> str:
    parts = [REQUIREMENTS / f"{name}.lock"]
    if name in WITH_TRITON:
        parts += [REQUIREMENTS / "triton-server.txt", REPOSITORY / "images" / "triton-cpu" / "install_triton.py"]
    digest = hashlib.sha256(f"{version}{TORCH}relocatable{'compiled' if name in OF_PODS else ''}".encode())
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
