"""The refusals that were looked up in upstream's sources and found true: reasons.yaml."""

import re
from functools import cache
from pathlib import Path

import yaml

from tests.families import records

FILE = Path(__file__).with_name("reasons.yaml")


class UnreviewedError(Exception):
    """Plan refuses a model for a reason that nobody has looked up."""


@cache
def reviewed():
    """Reasons by code, in the order in which they are tried."""
    return yaml.safe_load(FILE.read_text())["reasons"]


def of_gpus():
    """Codes of what a GPU lacks, whatever the model."""
    return {code for code, reason in reviewed().items() if reason.get("about") == "gpu"}


def code_of(refusal, kind, repo):
    """The code of the reason that a refusal of plan gives.

    Raises:
        UnreviewedError: no reason in the list has these words, for this kind and this family.
    """
    family = next(name for name, models in records.families().items() if repo in models)
    for code, reason in reviewed().items():
        if kind not in reason.get("kinds", [kind]) or family not in reason.get("families", [family]):
            continue
        if all(re.search(pattern, getattr(refusal, field)) for field, pattern in reason["refusal"].items()):
            return code
    raise UnreviewedError(f"{kind} {repo} ({family}): {refusal}")
