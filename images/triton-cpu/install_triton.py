"""Lays out the Triton server of the nvidia-pytriton wheel in the environment whose Python runs this file.

    <environment>/bin/python images/triton-cpu/install_triton.py

Afterwards `bin/tritonserver` of that environment is a server as in NVIDIA's images, with the Python backend for this
Python. The wheel is unpacked already; this adds a backend directory and a launcher. Running it again changes nothing.
Standard library only.
"""  # noqa: INP001 - a script

import ctypes
import importlib.util
import os
import shlex
import sys
import sysconfig
from pathlib import Path

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBPYTHON = f"libpython{PYTHON}.so.1.0"
NUMPY_BELOW = 2
"""Triton 2.51's Python stub aborts on the first request with NumPy 2, though the server says it is ready."""

BACKENDS = Path("lib", "triton", "backends")
LAUNCHER = Path("bin", "tritonserver")
MODE = 0o755

SCRIPT = """\
#!/bin/sh
# Made by install_triton.py; the environment may be moved. The stub takes the first python3 on PATH; compiled Python
# files stay out of repositories.
here=$(realpath -- "$0") || exit
bin=${{here%/*}}
export PATH="$bin:$PATH"
export LD_LIBRARY_PATH="$bin"/{libraries}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PYTHONDONTWRITEBYTECODE=1
exec "$bin"/{server} --backend-directory="$bin"/{backends} "$@"
"""


class LayoutError(Exception):
    """Something Triton needs is not there; the text says what and where to get it."""


def main() -> int:
    """Lay out and say where; 1 when something is missing."""
    try:
        launcher = install(Path(sys.prefix))
    except LayoutError as error:
        print(f"install_triton: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    print(f"install_triton: {launcher}")  # noqa: T201 - a command
    return 0


def install(environment: Path) -> Path:
    """Write backend directory and launcher below `environment`, the prefix of the running Python.

    Returns:
        The launcher.

    Raises:
        LayoutError: wheel, stub, libpython or a NumPy below 2 is missing.
    """
    wheel = _wheel_folder()
    _check_numpy()
    sources = [
        wheel / "backends" / "python" / "libtriton_python.so",
        wheel / "backends" / "python" / "triton_python_backend_utils.py",
        wheel / "python_backend_stubs" / PYTHON / "triton_python_backend_stub",
    ]
    server, libraries = wheel / "bin" / "tritonserver", wheel.parents[1] / "nvidia_pytriton.libs"
    if absent := [str(path) for path in (*sources, server, libraries) if not path.exists()]:
        raise LayoutError(
            f"the nvidia-pytriton wheel lacks {', '.join(absent)}; expected a build for Python {PYTHON} on Linux "
            "x86-64. Install requirements/triton-server.txt again."
        )
    backend = environment / BACKENDS / "python"
    backend.mkdir(parents=True, exist_ok=True)
    for source in sources:
        _replace(backend / source.name, source.read_bytes())
    server.chmod(MODE)  # some installers drop the bit
    launcher = environment / LAUNCHER
    script = SCRIPT.format(
        libraries=":".join(map(shlex.quote, (_beside(launcher, libraries), *_libpython_folder()))),
        server=shlex.quote(_beside(launcher, server)),
        backends=shlex.quote(_beside(launcher, environment / BACKENDS)),
    )
    _replace(launcher, script.encode())
    return launcher


def _beside(launcher: Path, path: Path) -> str:
    return os.path.relpath(path, launcher.parent)


def _replace(file: Path, data: bytes) -> None:
    """Put `file` in place whole: a server that runs keeps the one it has open."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(data)
    new.chmod(MODE)
    new.replace(file)


def _wheel_folder() -> Path:
    found = importlib.util.find_spec("pytriton")
    if found is None or not found.submodule_search_locations:
        raise LayoutError(
            f"nvidia-pytriton is not installed in {sys.prefix}; expected 0.7.0. Run `{sys.executable} -m pip install "
            "--no-deps --require-hashes -r requirements/triton-server.txt` and then this again."
        )
    return Path(found.submodule_search_locations[0]) / "tritonserver"


def _check_numpy() -> None:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - only this check asks for versions

    try:
        installed = version("numpy")
    except PackageNotFoundError:
        installed = "none"
    if installed == "none" or int(installed.split(".")[0]) >= NUMPY_BELOW:
        raise LayoutError(
            f"numpy here is {installed}; Triton 2.51's Python backend needs one below {NUMPY_BELOW}, or it says it is "
            "ready and dies at the first request. Install requirements/triton.lock."
        )


def _libpython_folder() -> list[str]:
    """Where the stub finds libpython: this Python's own folder, or none when only the system's loader knows one."""
    for folder in (Path(str(sysconfig.get_config_var("LIBDIR"))), Path(sys.base_prefix) / "lib"):
        if (folder / LIBPYTHON).exists():
            return [str(folder)]
    try:
        ctypes.CDLL(LIBPYTHON)
    except OSError:
        raise LayoutError(
            f"{LIBPYTHON} is not here; Triton's stub embeds Python and loads it. On Debian: apt install "
            f"libpython{PYTHON}; or use a Python that was built with --enable-shared."
        ) from None
    return []


if __name__ == "__main__":
    sys.exit(main())
