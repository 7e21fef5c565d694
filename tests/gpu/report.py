"""What a run of the GPU check found: one line a check, as text, Markdown and JSON. Standard library only."""

import json
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
CODES = {"passed": 0, "failed": 1, "no gpu": 75}


@dataclass(frozen=True)
class Line:
    """One check: what came of it, and in words why."""

    name: str
    status: str
    detail: str
    seconds: float

    def __str__(self):
        return f"{self.status:<8}{self.name:<34}{self.seconds:>7.1f} s  {self.detail}"


def exit_code(lines, *, gpu):
    """0: no check failed, on a GPU. 1: one failed. 75: none failed, and there was no GPU to check on."""
    if any(line.status == FAILED for line in lines):
        return CODES["failed"]
    return CODES["passed"] if gpu else CODES["no gpu"]


def as_json(lines, host):
    document = {
        "host": host,
        "lines": [asdict(line) for line in lines],
        "at": _now(),
        "python": platform.python_version(),
    }
    return json.dumps(document, indent=2) + "\n"


def as_markdown(lines, host):
    """A table for docs/verified.md: a row a check, skipped ones with their reason."""
    head = [
        f"GPU check of {_now()[:10]} on {host['gpu'] or 'no GPU'}, Python {platform.python_version()}, commit {host['commit']}",
        "",
        "| check | result | detail |",
        "|---|---|---|",
    ]
    rows = [f"| {line.name} | {line.status} | {line.detail.replace('|', '/')} |" for line in lines]
    return "\n".join([*head, *rows]) + "\n"


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")
