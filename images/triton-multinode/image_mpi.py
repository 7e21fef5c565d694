"""Checks how an image has Open MPI and EFA installed, and writes the environment that a worker's sshd gives to orted.

    python3 image_mpi.py              print what is installed; exit 1 when ranks over nodes could not be launched
    python3 image_mpi.py --write FILE the same, and write sshd's SetEnv directive

A shell that sshd starts has none of the image's environment. orted, the launcher that mpirun starts through it, needs
the variables in FORWARDED: Open MPI in NVIDIA's images (HPC-X) was built for another folder and finds its own files by
OPAL_PREFIX, and OMPI_MCA_* keep it off networks that pods lack.

Standard library only.
"""  # noqa: INP001 - a script

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

FORWARDED = re.compile(r"PATH|LD_LIBRARY_PATH|OPAL_PREFIX|OMPI_MCA_\w+")
SERIES = re.compile(r"Open MPI\) 4\.1\.")
"""slipway/tasks/serving/rendered/commands.py counts on how 4.1 ends ranks; 5 has another launcher, prted."""
AMAZON = Path("/opt/amazon")
"""Where NVIDIA's images keep libfabric and the plugin (in 26.06 /opt/amazon/efa/bin is on PATH)."""
PLUGINS = ("libnccl-net-ofi.so", "libnccl-net.so")
"""Names of aws-ofi-nccl's library: with NCCL_NET_PLUGIN=ofi, and without it."""
EFA = "ofi"


class ImageError(Exception):
    """Ranks over nodes cannot be launched in this image; the text says why."""


def main() -> int:
    """Print the facts and write the directive; return 1 when one of them is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="file for sshd's SetEnv directive")
    parser.add_argument("--amazon", type=Path, default=AMAZON, help="folder of Elastic Fabric Adapter's libraries")
    arguments = parser.parse_args()
    try:
        for name, value in (*mpi_facts(os.environ), *efa_facts(arguments.amazon, os.environ)):
            print(f"{name}: {value}")  # noqa: T201 - a command
        directive = set_env(os.environ)
    except ImageError as error:
        print(f"image_mpi: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    print(directive)  # noqa: T201 - a command
    if arguments.write:
        arguments.write.write_text(f"# Written by image_mpi.py from the image's environment.\n{directive}\n")
    return 0


def mpi_facts(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What there is of Open MPI.

    Raises:
        ImageError: a program is missing, of another series, or not that of OPAL_PREFIX.
    """
    found = shutil.which("mpirun", path=environment.get("PATH", ""))
    if found is None:
        raise ImageError(f"mpirun is not on PATH ({environment.get('PATH', '')}).")
    yield "mpirun", f"{found} ({Path(found).resolve()})"
    words = subprocess.run([found, "--version"], env=dict(environment), capture_output=True, text=True, check=False)  # noqa: S603 - mpirun
    version = (words.stdout or words.stderr).strip().partition("\n")[0]
    if words.returncode or not SERIES.search(version):
        raise ImageError(f"{found} --version says {version!r} (exit {words.returncode}), expected Open MPI 4.1.")
    yield "version", version
    orted = Path(found).parent / "orted"
    stated = environment.get("OPAL_PREFIX")
    for each in (orted, *([Path(stated) / "bin" / "orted"] if stated else [])):
        if not os.access(each, os.X_OK):
            raise ImageError(
                f"{each} is missing (OPAL_PREFIX is {stated or 'not set'}); mpirun starts it on other nodes."
            )
    if stated and not (Path(stated) / "bin" / "orted").samefile(orted):
        raise ImageError(f"OPAL_PREFIX is {stated}, and {found} belongs to another Open MPI.")
    yield "orted", str(orted.resolve())
    yield "OPAL_PREFIX", stated or "not set"


def efa_facts(amazon: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What there is of Elastic Fabric Adapter.

    Raises:
        ImageError: NCCL is told to use it, and libfabric or the NCCL plugin is missing.
    """
    chosen = environment.get("NCCL_NET_PLUGIN", "not set")
    yield "NCCL_NET_PLUGIN", chosen
    for name, patterns in (("libfabric", ("libfabric.so*",)), ("NCCL plugin", PLUGINS)):
        found = sorted(file for pattern in patterns for file in amazon.glob(f"*/lib*/{pattern}"))
        if chosen == EFA and not found:
            raise ImageError(
                f"{name}: none of {', '.join(patterns)} below {amazon}. Use a base image that has them, as NVIDIA's of "
                "26.06 does, or build with NCCL_NET_PLUGIN=none, which is TCP."
            )
        yield name, ", ".join(map(str, found)) or "none"


def set_env(environment: Mapping[str, str]) -> str:
    """Write the variables as one directive, because sshd reads the first SetEnv only.

    Raises:
        ImageError: a value cannot be written in a quoted word.
    """
    values = {name: value for name, value in environment.items() if FORWARDED.fullmatch(name)}
    if unfit := [name for name, value in values.items() if re.search(r'["\\\n]', value)]:
        raise ImageError(f"{', '.join(unfit)}: a value with a quote, a backslash or a line break cannot reach sshd.")
    return " ".join(["SetEnv", *(f'"{name}={value}"' for name, value in sorted(values.items()))])


if __name__ == "__main__":
    sys.exit(main())
