"""Jobs: which step runs, and what its result document says."""

import importlib
import inspect
import json
from typing import get_args

import pytest

from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS
from slipway.tasks.contracts.redaction import MESSAGE_CHARS
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.jobs import Job, report
from tests.fakes.workspace import workspace

URI = "s3://bucket/result.json"


def test_every_step_has_a_record():
    assert set(STEP_KINDS) == set(get_args(Step))


@pytest.mark.parametrize("step", STEP_KINDS)
def test_every_step_has_a_module_of_its_name_that_takes_its_document(step):
    run = inspect.signature(importlib.import_module(f"slipway.tasks.steps.{step.replace('-', '_')}").run)

    documents = STEP_KINDS[step].documents
    required = [each.annotation for each in run.parameters.values() if each.default is each.empty]
    assert required == [documents.request if documents else Release, Workspace]


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (
            InputError("engine.gpu is not here", found="L4", expected="A10G", remedy="Choose A10G."),
            ("InputError", 65, "engine.gpu is not here", "L4", "A10G", "Choose A10G."),
        ),
        (ZeroDivisionError("division by zero"), ("ZeroDivisionError", 70, "", "", "", "")),
    ],
)
def test_a_failed_result_has_the_fields_of_its_error(tmp_path, error, fields):
    failure = failure_of(error, tmp_path)

    names = ("kind", "exit_code", "what", "found", "expected", "remedy")
    assert tuple(failure[name] for name in names) == fields


def test_the_fields_of_a_failed_result_are_bounded(tmp_path):
    failure = failure_of(InputError("x", found="y" * 10**6), tmp_path)

    assert len(failure["found"]) <= MESSAGE_CHARS


def failure_of(error, folder):
    """The failure in the result of a job that raises `error`."""
    space = workspace(folder)

    def work(_):
        raise error

    with pytest.raises(type(error)):
        report(Job("build", "run-1", URI, work), space)
    return json.loads(space.store.read_bytes(URI))["error"]
