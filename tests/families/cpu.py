"""What came of each family on CPU, as tests/local/families recorded it: tests/families/cpu.yaml."""

from functools import cache
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("cpu.yaml")
FORMATS = ("int8", "int4")
HEADER = """\
# Small random checkpoints of each family, from plan to a booted Triton, as tests/local/families ran them:
#   python3 -m tests local -- tests/local/families
# writes this file again where SLIPWAY_UPDATE_GOLDENS=1 is set. A number is the cosine of the logits of engine and source.
"""


@cache
def recorded():
    return _read()


def record(families, family, versions, **facts):
    """Add what was measured of a family to the record, whose order is that of `families`."""
    kept = _read()["families"] if FILE.exists() else {}
    kept[family] = {**kept.get(family, {}), **facts}
    document = {"versions": versions, "families": {name: kept[name] for name in families if name in kept}}
    FILE.write_text(HEADER + yaml.safe_dump(document, sort_keys=False, width=120))
    recorded.cache_clear()


def _read():
    return yaml.safe_load(FILE.read_text())
