"""Compares upstream's files with what is recorded of them here.

    python -m tests.contracts                         where each record was read, and whether images hold that version
    python -m tests.contracts compare FOLDER          a checkout, or the folder that holds an unpacked wheel's packages
    python -m tests.contracts compare FILE RECORD     one file, with one record

Exits 1 when something differs, and 2 when nothing of the folder is recorded.
"""

import argparse
import sys
from pathlib import Path

from tests.contracts.extract import differences
from tests.contracts.recorded import contract

UPSTREAM = "upstream.yaml"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.contracts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command = parser.add_subparsers(dest="command").add_parser("compare", help="compare a fresh copy with its record")
    command.add_argument("place", type=Path, metavar="FOLDER|FILE")
    command.add_argument("record", nargs="?", help="file of this folder, when a single file is compared")
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        return listed()
    return compare(parsed.place, parsed.record)


def listed():
    for entry in contract(UPSTREAM):
        state = "confirmed" if entry["confirmed"] else "NOT confirmed for the images"
        commits = ", ".join(f"{name} {commit[:12]}" for name, commit in entry["commits"].items())
        print(f"{entry['record']}: {entry['repository']} {entry['path']} @ {commits}: {state}")
    return 0


def compare(place, record):
    """Print each difference; how many there were decides the exit code."""
    chosen = [
        (entry, place if place.is_file() else place / entry["path"])
        for entry in contract(UPSTREAM)
        if record in (None, entry["record"])
        and (place.name == Path(entry["path"]).name if place.is_file() else (place / entry["path"]).is_file())
    ]
    if not chosen:
        print(f"{place}: no file that is recorded ({UPSTREAM} names them)", file=sys.stderr)
        return 2
    total = 0
    for entry, file in chosen:
        found = differences(entry, contract(entry["record"]), file.read_text())
        print(f"{entry['record']} and {file}: {len(found)} differences")
        for each in found:
            print(f"  {each}")
        total += len(found)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
