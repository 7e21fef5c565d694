"""The refusals that were looked up in upstream's sources and proved true: reasons.yaml."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.models import records
from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.contracts.errors import InputError

FILE = Path(__file__).with_name("reasons.yaml")


class UnreviewedError(Exception):
    """Plan refuses a model for a reason that nobody has looked up."""


@cache
def reviewed() -> Mapping[str, Mapping[str, Any]]:
    """Reasons by code, in the order in which they are tried."""
    reasons: Mapping[str, Mapping[str, Any]] = yaml.safe_load(FILE.read_text())["reasons"]
    return reasons


def of_gpus() -> set[str]:
    """Codes of what a GPU lacks, whatever the model."""
    return {code for code, reason in reviewed().items() if "short" not in reason}


def code_of(refusal: InputError, kind: EngineKind, repo: str) -> str:
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
