"""Jobs: which step runs, and what its result document says."""

import json
from typing import get_args

import pytest

from tasks.contracts.errors import InputError
from tasks.contracts.redaction import MESSAGE_CHARS
from tasks.contracts.steps import Step
from tasks.jobs import Job, report
from tasks.step_table import RELEASE_STEPS
from tests.fakes.workspace import workspace

URI = "s3://bucket/result.json"


def test_every_step_has_an_entry_in_the_table():
    assert {"plan", "revert", "drill", "retention", *RELEASE_STEPS} == set(get_args(Step))


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
