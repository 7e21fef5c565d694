"""Models and GPUs of models.yaml, and a site that has every one of the GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.models.hub import ModelRecord
from slipway.tasks.contracts.site.site import Site

REPOSITORY = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("models.yaml")
SITE = REPOSITORY / "sites" / "eks.yaml"
ROOMY = {"memory": "8Ti", "scratch": "16Ti"}
"""Sizes that a site chooses as its models need them: they say nothing about a model."""


@dataclass(frozen=True)
class GpuColumn:
    """A GPU product and its short name."""

    product: str
    name: str


@cache
def recorded() -> Mapping[str, Any]:
    """The whole of models.yaml."""
    document: Mapping[str, Any] = yaml.safe_load(FILE.read_text())
    return document


def families() -> Mapping[str, Mapping[str, ModelRecord]]:
    """Models by repository, by family."""
    by_family: Mapping[str, Mapping[str, ModelRecord]] = recorded()["families"]
    return by_family


def models() -> dict[str, ModelRecord]:
    """Every model by repository."""
    return {repo: model for family in families().values() for repo, model in family.items()}


def gpus() -> list[GpuColumn]:
    """The GPUs, in the order of the tables' columns."""
    return [GpuColumn(product, facts["name"]) for product, facts in recorded()["gpus"].items()]


@cache
def site() -> Site:
    """sites/eks.yaml with these GPUs, and with as much disk and memory as a step may request."""
    document = yaml.safe_load(SITE.read_text().replace("@sha256:DIGEST", f"@sha256:{'d' * 64}"))
    products = {
        product: {name: value for name, value in facts.items() if name != "name"}
        for product, facts in recorded()["gpus"].items()
    }
    shapes = {name: {**shape, **ROOMY} for name, shape in document["shapes"].items()}
    return Site.model_validate({**document, "gpus": products, "shapes": shapes})
