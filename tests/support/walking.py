"""What is below a folder in which others work meanwhile: pathlib's globs fail when a folder vanishes under them."""

import os
from contextlib import suppress
from pathlib import Path


def below(folder):
    """Folders and files with what lstat says of them, whatever vanishes meanwhile left out."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            with suppress(FileNotFoundError):
                yield path, path.lstat()
