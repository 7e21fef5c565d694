from tasks.contracts.plan import explain

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
    assert set(explain(OLD, None).values()) == {("no release is live",)}


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


def test_added_and_removed_fields_are_told_apart():
    new = changed("download", {"files": {"config.json": "git-sha1:" + "b" * 40, "x.json": "git-sha1:" + "e" * 40}})

    assert explain(new, OLD)["download"] == (
        "files.model.safetensors removed: was aaaaaaaaaaaa",
        "files.x.json added: eeeeeeeeeeee",
    )
