"""Writes slipway/tasks/contracts/engine/triton_releases.py from the compatibility matrix of Triton's server repository.

A release is served on once plan knows its runtime: `python -m tests.contracts write` made the table of that vLLM, or the
release holds the TensorRT-LLM that engines are built with. Rows that the file given does not have stay as they are.
"""

import re

from slipway.tasks.contracts.engine.triton_releases import ROWS
from slipway.tasks.engines.trtllm.maker import TENSORRT_LLM
from slipway.tasks.engines.upstream.tables import PACKAGES
from tests.contracts.upstream_tables import TABLES
from tests.support.paths import REPOSITORY

MODULE = REPOSITORY / "slipway" / "tasks" / "contracts" / "engine" / "triton_releases.py"
RUNTIMES = {"trtllm": "TensorRT-LLM version", "vllm": "vLLM version"}
RELEASE, TENSORRT, CUDA = "Triton release version", "TensorRT version", "CUDA version"
TABLE = "ROWS: dict[Flavour, tuple[Row, ...]] = "


def matrix_of(text):
    """Rows of each flavour's table as (release, runtime, TensorRT, CUDA), as written in compatibility.md."""
    sections = re.split(r"^## Container Name: (\w+)-python-py3$", text, flags=re.MULTILINE)[1:]
    tables = dict(zip(sections[::2], map(cells, sections[1::2]), strict=True))
    return {flavour: [stated(row, RUNTIMES[flavour]) for row in tables.get(flavour, [])] for flavour in RUNTIMES}


def cells(section):
    """Each row of a section's table, by the names of the columns."""
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    names, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [dict(zip(names, row, strict=True)) for row in rows]


def stated(row, runtime):
    """What the table here keeps of a row; NVIDIA's own builds of vLLM append their commit to its version."""
    return row[RELEASE], row[runtime].partition("+")[0], row.get(TENSORRT), row[CUDA]


def missing(flavour, runtime):
    """What plan does not know of a runtime yet; empty: a release with it can serve."""
    if flavour == "trtllm":
        return (
            "" if runtime == TENSORRT_LLM else f"engines are built with TensorRT-LLM {TENSORRT_LLM} (trtllm/maker.py)"
        )
    table = f"{PACKAGES[flavour]}-{runtime}.json"
    return "" if (TABLES / table).is_file() else f"{table} is absent: unpack that wheel, and `write` its table first"


def merged(known, found, commit):
    """Known rows with those found in upstream's file, newest first, from the oldest known release on."""
    rows = {}
    for flavour, stored in known.items():
        oldest, before = stored[-1][0], {row[0]: row for row in stored}
        serves = {row[0] for row in stored if row[-1]}
        after = dict(before)
        for row in (each for each in found[flavour] if each[0] >= oldest):
            new = row[0] > max(serves) and not missing(flavour, row[1])
            if before.get(row[0], ())[:4] != row or new:
                after[row[0]] = (*row, commit, (new or row[0] in serves) and not missing(flavour, row[1]))
        rows[flavour] = tuple(after[release] for release in sorted(after, reverse=True))
    return rows


def module(rows):
    """The module with these rows in place of its own."""
    lines = [
        f"    {flavour!r}: (\n" + "".join(f"        {row!r},\n" for row in rows[flavour]) + "    ),\n"
        for flavour in rows
    ]
    return MODULE.read_text().partition(TABLE)[0] + TABLE + f"{{\n{''.join(lines)}}}\n".replace("'", '"')


def write_releases(file, commit):
    """Write the module; print each row that is new or that upstream changed, and what keeps it from serving."""
    rows = merged(ROWS, matrix_of(file.read_text()), commit)
    MODULE.write_text(module(rows))
    for flavour, stored in ROWS.items():
        known = {row[0]: row for row in stored}
        for row in rows[flavour]:
            if row != known.get(row[0]):
                print(f"{row[0]} with {flavour} {row[1]}: {outcome(flavour, row, known.get(row[0]))}")
    return 0


def outcome(flavour, row, before):
    """Whether a changed row serves, and what it replaces."""
    serves = "serves" if row[-1] else f"does not serve: {missing(flavour, row[1]) or 'older than those that do'}"
    return f"{serves}; recorded before: {', '.join(map(str, before[1:4]))}" if before else serves
