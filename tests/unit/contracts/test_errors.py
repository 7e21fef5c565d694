import copy

import pytest

from slipway.tasks.contracts.errors import (
    ConflictError,
    DigestMismatchError,
    InputError,
    PipelineError,
    UnavailableError,
)
from slipway.tasks.contracts.redaction import MESSAGE_CHARS


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "engine.gpu is not here"),
        ({"found": "L4"}, "engine.gpu is not here: found L4"),
        ({"expected": "A10G"}, "engine.gpu is not here: expected A10G"),
        ({"found": "L4", "expected": "A10G"}, "engine.gpu is not here: found L4, expected A10G"),
        ({"remedy": "Choose A10G."}, "engine.gpu is not here. Choose A10G."),
        (
            {"found": "L4", "expected": "A10G", "remedy": "Choose A10G."},
            "engine.gpu is not here: found L4, expected A10G. Choose A10G.",
        ),
    ],
)
def test_fields_of_an_error_become_one_text(fields, text):
    assert str(InputError("engine.gpu is not here", **fields)) == text


def test_fields_that_are_not_given_are_empty():
    error = UnavailableError("S3 did not answer")

    assert (error.what, error.found, error.expected, error.remedy) == ("S3 did not answer", "", "", "")


def test_a_field_of_any_length_leaves_a_message_that_kubernetes_keeps_whole():
    error = PipelineError("x", found="y" * 10**6, remedy="Do this.")

    assert len(str(error)) <= MESSAGE_CHARS
    assert str(error).endswith("Do this.")


@pytest.mark.parametrize("kind", [PipelineError, InputError, ConflictError, UnavailableError])
def test_a_copy_of_an_error_keeps_its_fields(kind):
    error = copy.copy(kind("what", found="f", expected="e", remedy="Do."))

    assert type(error) is kind
    assert (error.what, error.found, error.expected, error.remedy) == ("what", "f", "e", "Do.")
    assert str(error) == "what: found f, expected e. Do."


def test_a_digest_is_shown_as_far_as_a_person_compares_it():
    error = DigestMismatchError("a.bin", found="sha256:" + "1" * 64, expected="sha256:" + "2" * 64, remedy="Try again.")

    shown = "a.bin has the wrong digest: found sha256:111111111111, expected sha256:222222222222. Try again."
    assert str(error) == shown
