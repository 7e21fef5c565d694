"""Models and GPUs of tests/families/models.yaml, and a site that has every one of the GPUs."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from tasks.contracts.site.site import Site
from tests.fakes.eks_site import eks

FILE = Path(__file__).with_name("models.yaml")
ROOMY = {"memory": "8Ti", "scratch": "16Ti"}
"""Sizes that a site chooses as its models need them: they say nothing about a model."""


@dataclass(frozen=True)
class GpuColumn:
    """A GPU product and its short name."""

    product: str
    name: str


@cache
def recorded():
    return yaml.safe_load(FILE.read_text())


def families():
    """Models by repository, by family."""
    return recorded()["families"]


def models():
    """Every model by repository, as tests.fakes.family_hub.FamilyHub takes them."""
    return {repo: model for family in families().values() for repo, model in family.items()}


def gpus():
    return [GpuColumn(product, facts["name"]) for product, facts in recorded()["gpus"].items()]


@cache
def site():
    """sites/eks.yaml with these GPUs and with as much disk and memory as a step may ask for."""
    document = eks()
    products = {
        product: {name: value for name, value in facts.items() if name != "name"}
        for product, facts in recorded()["gpus"].items()
    }
    shapes = {name: {**shape, **ROOMY} for name, shape in document["shapes"].items()}
    return Site.model_validate({**document, "gpus": products, "shapes": shapes})
