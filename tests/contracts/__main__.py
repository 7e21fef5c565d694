"""Compares upstream's files with what is recorded of them here.

    python -m tests.contracts                         where each record was read, and whether images hold that version
    python -m tests.contracts compare FOLDER          a checkout, or the folder that holds an unpacked wheel's packages
    python -m tests.contracts compare FILE RECORD     one file, with one record
    python -m tests.contracts write FOLDER            the tables of slipway/tasks/engines/upstream, from unpacked wheels in FOLDER
    python -m tests.contracts triton FILE COMMIT      Triton's releases, from compatibility.md of its server repository

Exits 1 when something differs, and 2 when nothing of the folder is recorded.
"""

import argparse
import sys
from pathlib import Path

from tests.contracts.extract import differences
from tests.contracts.recorded import contract
from tests.contracts.triton_matrix import write_releases
from tests.contracts.upstream_tables import TABLES, tables_of, written

UPSTREAM = "upstream.yaml"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.contracts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command")
    command = commands.add_parser("compare", help="compare a fresh copy with its record")
    command.add_argument("place", type=Path, metavar="FOLDER|FILE")
    command.add_argument("record", nargs="?", help="file of this folder, when a single file is compared")
    writing = commands.add_parser("write", help="write the tables of a new version")
    writing.add_argument("place", type=Path, metavar="FOLDER")
    releases = commands.add_parser("triton", help="write the rows of Triton's releases")
    releases.add_argument("place", type=Path, metavar="FILE")
    releases.add_argument("commit", help="where the file was read")
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        return listed()
    if parsed.command == "triton":
        return write_releases(parsed.place, parsed.commit)
    return write(parsed.place) if parsed.command == "write" else compare(parsed.place, parsed.record)


def listed():
    for entry in contract(UPSTREAM):
        state = "confirmed" if entry["confirmed"] else "NOT confirmed for the images"
        commits = ", ".join(f"{name} {commit[:12]}" for name, commit in entry["commits"].items())
        print(f"{entry['record']}: {entry['repository']} {entry['path']} @ {commits}: {state}")
    return 0


def write(place):
    """Write a table for each package below a folder that there is a reader for."""
    tables = dict(tables_of(place))
    for name, table in tables.items():
        (TABLES / name).write_text(written(table))
        print(f"wrote {name}")
    if not tables:
        print(f"{place}: neither vllm nor transformers is there", file=sys.stderr)
    return 0 if tables else 2


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
