"""Traces what the programs of the chain write, and reduces the traces to tests/contracts/written_paths.yaml.

    python -m tests.contracts.trace_writes wrap /tmp/traces      # then run the demo, then
    python -m tests.contracts.trace_writes reduce /tmp/traces

`wrap` makes a folder of commands for each image, that run the image's own under strace, and puts it before the others in
the `path_prefix` of local/images.yaml; undo that with git. `reduce` prints each program's written folders with one
example, and the paths that it tried to write in vain.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.support.paths import ENVIRONMENTS, REPOSITORY

IMAGES = REPOSITORY / "local" / "images.yaml"
COMMANDS = {"tasks": ("python",), "triton": ("python", "tritonserver")}
CALLS = (
    "execve,open,openat,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,unlink,unlinkat,rmdir,"
    "symlink,symlinkat,link,linkat,truncate,chmod,fchmodat"
)
WRAPPER = """#!/bin/sh
# a traced process cannot be traced again
grep -q "^TracerPid:[^1-9]*0$" /proc/self/status || exec {real} "$@"
exec strace -f --seccomp-bpf -qq -y -s 200 -e signal=none -e trace={calls} -o {out}/{name}.$$ {real} "$@"
"""
LINE = re.compile(r"\d+ +(\w+)\((.*)\) = (-?\d+)")
OPENED_TO_WRITE = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
QUOTED = re.compile(r'"([^"]*)"')
DESCRIPTOR = re.compile(r"^(?:AT_FDCWD|\d+)<([^>]*)>")
VOLUMES = {"scratch": "/scratch", "models": "/models", "tmp": "/tmp", "shared-memory": "/dev/shm"}
POD = re.compile(r"^.*/pods/[^/]+/")


def wrap(folder: Path) -> None:
    out = folder / "out"
    out.mkdir(parents=True)
    text = IMAGES.read_text()
    for environment, names in COMMANDS.items():
        (folder / environment).mkdir()
        for name in names:
            real = ENVIRONMENTS / environment / "bin" / name
            wrapper = folder / environment / name
            wrapper.write_text(WRAPPER.format(real=real, calls=CALLS, out=out, name=f"{environment}-{name}"))
            wrapper.chmod(0o755)
        text = text.replace(
            f'"${{ENVS}}/{environment}/bin"', f'"{folder / environment}", "${{ENVS}}/{environment}/bin"'
        )
    IMAGES.write_text(text)


def reduced(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = {}
    for trace in sorted((folder / "out").iterdir()):
        lines = trace.read_text(errors="replace").splitlines()
        program = _program(lines)
        record = found.setdefault(program, {"written": {}, "in vain": {}})
        for path, succeeded in _writes(lines):
            if "__pycache__" in path:
                continue
            kind = "written" if succeeded else "in vain"
            record[kind].setdefault(_folder(path), path)
    return found


def _program(lines: list[str]) -> str:
    words = QUOTED.findall(next(line for line in lines if " execve(" in line))
    return words[words.index("slipway.tasks") + 1] if "slipway.tasks" in words else "triton"


def _writes(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Paths as the container has them, and whether the call succeeded; what did not exist is not counted."""
    for line in lines:
        match = LINE.match(line)
        if (
            match is None
            or match[1] == "execve"
            or not QUOTED.search(match[2])
            or (match[1].startswith("open") and not OPENED_TO_WRITE.search(match[2]))
        ):
            continue
        failed = match[3].startswith("-")
        if failed and not re.search(r"EROFS|EACCES|EPERM|ENOSPC", line):
            continue
        path, base = QUOTED.findall(match[2])[-1], DESCRIPTOR.match(match[2])
        if not path.startswith("/"):
            path = f"{base[1] if base else ''}/{path}"
        yield _in_container(path), not failed


def _in_container(path: str) -> str:
    if not POD.match(path):
        return path
    inside = POD.sub("", path)
    kind, _, rest = inside.partition("/")
    name, _, below = rest.partition("/")
    if kind == "volumes" and name in VOLUMES:
        return f"{VOLUMES[name]}/{below}"
    return "/dev/termination-log" if inside.endswith("termination-log") else f"/{inside}"


def _folder(path: str) -> str:
    return next((volume for volume in VOLUMES.values() if path.startswith(f"{volume}/")), path)


if __name__ == "__main__":
    action, place = sys.argv[1], Path(sys.argv[2])
    if action == "wrap":
        wrap(place)
    else:
        print(yaml.safe_dump(reduced(place), sort_keys=True, width=150))
