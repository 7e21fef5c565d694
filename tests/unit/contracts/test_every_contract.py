"""A contract's validator is built when it is first used; one that cannot be built is found here, and not by a user."""

import pkgutil
from importlib import import_module

import pytest

from slipway import cli
from slipway.tasks import contracts, retention
from slipway.tasks.contracts.base import Contract


def below(model):
    return {model}.union(*map(below, model.__subclasses__()))


for package in (contracts, retention, cli):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
CONTRACTS = sorted(
    (each for each in below(Contract) if each.__module__.startswith("slipway.")), key=lambda each: each.__qualname__
)


def test_there_are_contracts():
    assert len(CONTRACTS) > 100


@pytest.mark.parametrize("model", CONTRACTS, ids=lambda each: each.__qualname__)
def test_its_validator_and_its_json_schema_can_be_made(model):
    model.model_rebuild(force=True)

    assert model.__pydantic_complete__
    assert model.model_json_schema()["type"] == "object"
