"""What a release says: `python3 .github/release_notes.py v0.1.0` prints its section of CHANGELOG.md.

Exits with 1 where the tag is not the version of the package, or the changelog is not closed: the section has no date
yet, or fragments are left in docs/changelog. Standard library only.
"""

import re
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"^## (\S+) - (\S+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class NotReadyError(Exception):
    """The repository is not what the tag says; the text says what to do."""


def notes(repository: Path, tag: str) -> str:
    """The text of the release that the tag names.

    Raises:
        NotReadyError: see the module.
    """
    version = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        raise NotReadyError(f"tag {tag}: expected v{version}, the version of pyproject.toml")
    left = sorted(path.name for path in (repository / "docs" / "changelog").glob("*.md") if path.name != "README.md")
    if left:
        raise NotReadyError(f"docs/changelog still has {', '.join(left)}: move them into CHANGELOG.md")
    newest = SECTION.search((repository / "CHANGELOG.md").read_text(encoding="utf-8"))
    if newest is None or newest[1] != version or not DATE.fullmatch(newest[2]):
        raise NotReadyError(
            f"CHANGELOG.md begins with {newest and newest[0].splitlines()[0]!r}: expected {version} and a date"
        )
    return newest[3].strip() + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(notes(REPOSITORY, sys.argv[1]))
    except NotReadyError as error:
        sys.exit(str(error))
