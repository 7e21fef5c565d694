"""`python3 -m bench.load --cpus 4 -- make test`: a command on a machine that others use too.

Each busy process has a session of its own. Where the kernel divides CPU time between sessions (autogroup in sched(7)),
it would otherwise slow down the command's own session alone.

With `--hold 10`, each process of the command is held up now and then, for up to ten seconds and a tenth of its time,
as one that gets no CPU or waits for a disk: it is moved into a frozen control group, which neither it nor its parent
notices. What is held up is printed. That takes root and a mounted cgroup2.

Ends with the command's exit code. Needs no environment.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"
JOIN = 'echo $$ > "$0" && exec "$@"'
PROCESSES, FREEZE = "cgroup.procs", "cgroup.freeze"
PASSES = 10
EVERY_S, SHARE = 0.5, 0.1
"""How often processes are chosen, and for how much of its time each is held up."""


def main() -> int:
    """Start that many processes that compute, run the command to its end, and end them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=4, help="processes that compute all the time")
    parser.add_argument("--hold", type=float, default=0, help="hold up random processes, each at most so many seconds")
    parser.add_argument("command", nargs="+", help="the command, after --")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with _busy(arguments.cpus):
        if not arguments.hold:
            with _running(arguments.command) as process:
                return process.wait()
        with _group() as running, _group() as held:
            (held / FREEZE).write_text("1")
            with _running(["/bin/sh", "-c", JOIN, str(running / PROCESSES), *arguments.command]) as process:
                _hold_up(process, running, held, arguments.hold)
            return process.wait()


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which is told to end, and waited for, if this process is."""
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    compute, busy = [sys.executable, "-S", "-c", BUSY, str(os.getpid())], list[subprocess.Popen[bytes]]()
    try:
        for _ in range(count):
            busy.append(subprocess.Popen(compute, start_new_session=True))
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """A control group without controllers. What is still in it goes back to the root."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    root = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if root is None:
        sys.exit("--hold: no cgroup2 is mounted. Mount one, as with: mount -t cgroup2 none /sys/fs/cgroup")
    group = root / f"slipway-load-{os.getpid()}-{random.getrandbits(32):x}"
    try:
        group.mkdir()
    except OSError as error:
        sys.exit(
            f"--hold: cannot make a control group in {root}: {error.strerror}. Run it as root, where it can be written."
        )
    try:
        yield group
    finally:
        for _ in range(PASSES):  # what is moved may have children meanwhile
            _move(_members(group), root)
        with contextlib.suppress(OSError):  # some go on in it
            group.rmdir()


def _hold_up(process: subprocess.Popen[bytes], running: Path, held: Path, longest_s: float) -> None:
    """Until the command has ended, move its processes into the frozen group now and then."""
    until_s: dict[int, float] = {}
    odds = SHARE * EVERY_S / (longest_s / 2)
    try:
        while process.poll() is None:
            time.sleep(EVERY_S)
            now = time.monotonic()
            _move([pid for pid in _members(held) if until_s.get(pid, 0) <= now], running)
            for pid in _members(running):
                if random.random() < odds:  # noqa: S311 - no secret
                    seconds = random.uniform(0, longest_s)  # noqa: S311
                    until_s[pid] = now + seconds
                    print(f"{time.strftime('%X')} {pid} is held up for {seconds:.1f} s: {_words(pid)}", file=sys.stderr)
                    _move([pid], held)
    finally:
        _move(_members(held), running)


def _words(pid: int) -> str:
    with contextlib.suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/cmdline").read_bytes()[:100].replace(b"\0", b" ").decode(errors="replace")
    return ""


def _members(group: Path) -> list[int]:
    return [int(pid) for pid in (group / PROCESSES).read_text().split()]


def _move(pids: list[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            (group / PROCESSES).write_text(str(pid))


if __name__ == "__main__":
    sys.exit(main())
