"""What tests/local/families measured of each family on a CPU: cpu.yaml."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("cpu.yaml")
FORMATS = ("int8", "int4")
HEADER = """\
# Small random checkpoints of each family, from plan to an answer, as tests/local/families ran them:
#   python3 -m tests local -- tests/local/families
# writes this file again where SLIPWAY_UPDATE_GOLDENS=1 is set. A number is the cosine of engine's and source's logits.
"""


@cache
def recorded() -> Mapping[str, Any]:
    """`versions` of the tools, and `families`: facts by family."""
    return _read()


def record(families: Iterable[str], family: str, versions: Mapping[str, str], **facts: object) -> None:
    """Add what was measured of a family to the record, whose order is that of `families`."""
    kept = _read()["families"] if FILE.exists() else {}
    kept[family] = {**kept.get(family, {}), **facts}
    document = {"versions": versions, "families": {name: kept[name] for name in families if name in kept}}
    FILE.write_text(HEADER + yaml.safe_dump(document, sort_keys=False, width=120))
    recorded.cache_clear()


def _read() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return document
