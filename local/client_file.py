"""Writes `client.json` in a stack's folder, which tells clients whether the stack runs and how to use it.

The client is the `slipway` command: slipway/cli/local_stack.py reads the file and describes its format.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from local.private_files import write_private

NAME = "client.json"


def write_running(folder: Path, environment: Mapping[str, str]) -> None:
    """Describe a stack that answers. The file holds credentials, so only its owner can read it."""
    write_private(folder / NAME, json.dumps({"state": "running", "environment": dict(environment)}, indent=1))


def write_stopped(folder: Path) -> None:
    """Remove addresses and credentials from the file; if there is no file, the stack never ran, and none is written."""
    if (folder / NAME).exists():
        write_private(folder / NAME, json.dumps({"state": "stopped"}))
