"""Files that a test makes, compared with those kept in tests/golden/.

`SLIPWAY_UPDATE_GOLDENS=1` writes them anew, for a person to look through; where CI is set, it is refused.
"""

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "SLIPWAY_UPDATE_GOLDENS"


def check_goldens(folder, files):
    """Whether `files`, texts by name, are exactly what tests/golden/`folder` holds."""
    kept = GOLDEN / folder
    if os.environ.get(UPDATE):
        assert not os.environ.get("CI"), f"{UPDATE} is for people: CI compares, and never writes what it compares with"
        _write(kept, files)
    found = {path.relative_to(kept).as_posix(): path.read_text() for path in sorted(kept.rglob("*")) if path.is_file()}
    assert sorted(files) == sorted(found), f"{folder} has other files; {UPDATE}=1 writes them anew"
    for name, text in files.items():
        assert text == found[name], f"{folder}/{name} differs; {UPDATE}=1 writes it anew"


def _write(kept, files):
    for path in kept.rglob("*"):
        if path.is_file() and path.relative_to(kept).as_posix() not in files:
            path.unlink()
    for name, text in files.items():
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text(text)
