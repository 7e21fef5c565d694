"""Files that a test makes, compared with those that were reviewed: most are in tests/golden/.

`SLIPWAY_UPDATE_GOLDENS=1` writes them again, for a person to look through; where CI is set, it is refused. Without it no
test writes what it compares with, not even a file that is absent.
"""

import os

from tests.support.paths import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden"
UPDATE = "SLIPWAY_UPDATE_GOLDENS"


def are_updated():
    """Whether a person wants golden files written again."""
    if not os.environ.get(UPDATE):
        return False
    assert not os.environ.get("CI"), f"{UPDATE} is for people: CI compares, and never writes what it compares with"
    return True


def check_golden(file, text):
    """Whether `text` is exactly what a file holds."""
    if are_updated():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    name = file.relative_to(REPOSITORY).as_posix()
    assert file.exists(), f"there is no {name}; {UPDATE}=1 writes it"
    assert text == file.read_text(), f"{name} differs; {UPDATE}=1 writes it again"


def check_goldens(folder, files):
    """Whether `files`, texts by name, are exactly what tests/golden/`folder` holds."""
    kept = GOLDEN / folder
    if are_updated():
        for path in _files(kept).keys() - files.keys():
            (kept / path).unlink()
    for name, text in files.items():
        check_golden(kept / name, text)
    assert sorted(files) == sorted(_files(kept)), f"{folder} has other files; {UPDATE}=1 removes them"


def _files(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
