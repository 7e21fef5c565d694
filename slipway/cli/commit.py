"""The commit that the command was made of."""

import subprocess
from pathlib import Path

RECORD = Path(__file__).with_name("commit.txt")
"""Written into a wheel when it is built (setup.py)."""
REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = 12
ANSWER_S = 5


def commit() -> str:
    """Twelve digits of the commit, and whether the checkout has changed since; empty where nobody recorded it."""
    if RECORD.exists():
        return RECORD.read_text(encoding="ascii").strip()
    if not (REPOSITORY / ".git").exists():
        return ""
    command = [
        "git",
        "-C",
        str(REPOSITORY),
        "describe",
        "--always",
        "--exclude=*",
        f"--abbrev={DIGITS}",
        "--dirty=, changed",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=ANSWER_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
