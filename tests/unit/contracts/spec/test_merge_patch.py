"""A merge patch is applied as RFC 7396 says, and the patch between two documents leads from one to the other."""

import pytest

from slipway.tasks.contracts.spec.merge_patch import merged, patch_between

OF_THE_RFC = [  # appendix A: original, patch, result
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("document", "patch", "result"), OF_THE_RFC)
def test_a_patch_is_applied_as_the_rfc_says(document, patch, result):
    assert merged(document, patch) == result


def test_fields_keep_their_order():
    assert list(merged({"name": 1, "engine": 2, "gate": 3}, {"new": 4, "name": 5})) == ["name", "engine", "gate", "new"]


@pytest.mark.parametrize("document", [{"a": {"b": 1, "c": [1]}, "d": 2}, {"a": 3}, {}])
@pytest.mark.parametrize("target", [{"a": {"b": 1}, "e": {"f": {}}}, {"a": {"c": [2]}, "d": 2}, {"d": {"a": 1}}, {}])
def test_the_patch_between_two_documents_leads_to_the_second(document, target):
    patch = patch_between(document, target)

    assert merged(document, patch) == target
    assert patch_between(target, target) == {}
