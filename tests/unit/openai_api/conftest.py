"""What translates the schemas of requests is a process of its own, which a busy machine may hold up."""

import dataclasses

import pytest

from slipway.tasks.serving.openai_api.generation import grammars
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """No schema here is given up for the time that it takes."""
    monkeypatch.setattr(grammars, "WAIT_S", PATIENCE_S)
    monkeypatch.setattr(grammars, "BUDGET", dataclasses.replace(grammars.BUDGET, seconds=PATIENCE_S))
