import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.plan import explain

OLD = {
    "download": {"files": {"model.safetensors": "sha256:" + "a" * 64, "config.json": "git-sha1:" + "b" * 40}},
    "quantize": {"quantization": {"format": "int8", "kv_cache": "none"}},
    "build": {"engine": {"max_batch_size": 8, "options": {}}},
    "assemble": {"templates": {"config.pbtxt.j2": "c" * 64}},
    "publish": {},
}


def changed(stage, fields):
    return {**OLD, stage: fields}


def test_nothing_changed_has_no_reasons():
    assert set(explain(OLD, OLD).values()) == {()}


def test_without_a_live_release_every_stage_says_so():
    assert set(explain(OLD, None).values()) == {("no release is live to compare with",)}


def test_a_changed_field_is_named_with_both_values():
    new = changed("quantize", {"quantization": {"format": "int4", "kv_cache": "none"}})

    reasons = explain(new, OLD)

    assert reasons["quantize"] == ("quantization.format: int8 → int4",)
    assert reasons["download"] == ()


def test_a_stage_that_only_inherits_a_change_names_where_it_comes_from():
    new = changed("quantize", {"quantization": {"format": "int4", "kv_cache": "none"}})

    reasons = explain(new, OLD)

    assert reasons["build"] == ("quantize changed",)
    assert reasons["assemble"] == ("build changed",)
    assert reasons["publish"] == ("assemble changed", "build changed")


def test_a_changed_file_is_named_with_short_digests():
    files = {**OLD["download"]["files"], "model.safetensors": "sha256:" + "d" * 64}

    assert explain(changed("download", {"files": files}), OLD)["download"] == (
        "files.model.safetensors: aaaaaaaaaaaa → dddddddddddd",
    )


def test_a_forced_run_is_called_by_its_option():
    forced = changed("download", {**OLD["download"], "salt": "run-2"})
    other = changed("download", {**OLD["download"], "salt": "run-1"})

    assert explain(forced, OLD)["download"] == ("made again (--force)",)
    assert explain(forced, other)["download"] == ("made again (--force)",)
    assert explain(OLD, forced)["download"] == ("the live release was made with --force",)
    assert explain(forced, forced)["download"] == ()


def test_added_and_removed_fields_are_told_apart():
    new = changed("download", {"files": {"config.json": "git-sha1:" + "b" * 40, "x.json": "git-sha1:" + "e" * 40}})

    assert explain(new, OLD)["download"] == (
        "files.model.safetensors removed: was aaaaaaaaaaaa",
        "files.x.json added: eeeeeeeeeeee",
    )


def of_option(old, new):
    """The reason when an option of the engine changes."""

    def fields(value):
        return changed("build", {"engine": {"max_batch_size": 8, "options": {"a": value}}})

    return explain(fields(new), fields(old))["build"]


LONG = "registry.example/models/serving/triton@sha256:"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (LONG + "1" * 64, LONG + "1" * 8 + "2" * 56, f"…{'1' * 40}… → …11111111{'2' * 32}…"),
        (f"{'a' * 50}b", f"{'a' * 50}cd", "…aaaaaaaab → …aaaaaaaacd"),
        ("a" * 50, "a" * 51, "…aaaaaaaa → …aaaaaaaaa"),
        (1, 1.0, "1 → 1.0"),
        (1, True, "1 → True"),
        (1, "1", '1 → "1"'),
    ],
)
def test_what_differs_of_two_values_is_shown(old, new, reason):
    assert of_option(old, new) == (f"engine.options.a: {reason}",)


values = st.one_of(
    st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text("ab:…", max_size=120),
    st.builds(lambda digest, length: f"sha256:{digest}"[:length], st.text("01", min_size=64, max_size=64), st.integers(0, 71)),
)  # fmt: skip


@given(old=values, new=values)
def test_two_values_with_two_keys_never_look_the_same(old, new):
    reasons = of_option(old, new)

    assert (reasons == ()) == (canonical_json(old) == canonical_json(new))
    for reason in reasons:
        before, after = reason.removeprefix("engine.options.a: ").split(" → ")
        assert before != after
