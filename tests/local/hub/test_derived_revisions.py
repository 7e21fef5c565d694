import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from local.hub.declaration import FixtureError
from local.hub.repositories import load_repositories
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S

ROWS, COLUMNS = 64, 32
VALUES = np.random.default_rng(7).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def as_bf16(values):
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def raw(dtype):
    return {"BF16": as_bf16(VALUES), "F16": VALUES.astype(np.float16), "F32": VALUES}[dtype].tobytes()


def read(content, name, dtype):
    size = int.from_bytes(content[:8], "little")
    entry = json.loads(content[8 : 8 + size])[name]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    stored = np.frombuffer(content[begin:end], {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}[dtype])
    if dtype == "BF16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32).reshape(ROWS, COLUMNS)


def damage(**fields):
    return {"damage": [{"file": "model.safetensors", "tensor": "layer.*", "seed": 1, **fields}]}


DERIVED = {
    "noise": damage(kind="noise", amount=0.5),
    "scale": damage(kind="scale", amount=-4),
    "zero-rows": damage(kind="zero-rows", amount=0.25),
    "removed": {"remove": ["config.json"]},
    "wrong-model.safetensors": {"wrong_digest": ["model.safetensors"]},
    "wrong-config.json": {"wrong_digest": ["config.json"]},
}
DTYPES = ("BF16", "F16", "F32")


@pytest.fixture(scope="module")
def fixtures(write_repository, safetensors):
    """A repository for each data type, with a branch for each derived revision."""
    for dtype in DTYPES:
        tensors = {name: (dtype, [ROWS, COLUMNS], raw(dtype)) for name in ("layer.weight", "head.weight")}
        folder = write_repository(
            f"acme/{dtype}",
            {
                "refs": {"branches": {"main": "whole", **{name: name for name in DERIVED}}},
                "revisions": [
                    {"name": "whole", "files": "whole"},
                    *({"name": name, "from": "whole", **changes} for name, changes in DERIVED.items()),
                ],
            },
            whole={"config.json": b"{}", "model.safetensors": safetensors(tensors)},
        )
    return folder.parent


@pytest.fixture(scope="module")
def hub(fixtures, start_hub):
    return start_hub()


def download(hub, cache, revision, dtype="BF16"):
    return Path(
        hub.api().hf_hub_download(f"acme/{dtype}", "model.safetensors", revision=revision, cache_dir=cache)
    ).read_bytes()


def listed(hub, revision):
    return hub.api().model_info("acme/BF16", revision=revision, files_metadata=True).siblings


@pytest.mark.parametrize("dtype", DTYPES)
def test_noise_is_as_strong_as_asked_and_hits_only_the_named_tensor(hub, tmp_path, dtype):
    before, after = (download(hub, tmp_path, revision, dtype) for revision in ("main", "noise"))

    change = read(after, "layer.weight", dtype) - read(before, "layer.weight", dtype)
    assert change.std() / VALUES.std() == pytest.approx(0.5, rel=0.1)
    assert np.array_equal(read(after, "head.weight", dtype), read(before, "head.weight", dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_multiplies_every_value(hub, tmp_path, dtype):
    before, after = (download(hub, tmp_path, revision, dtype) for revision in ("main", "scale"))

    assert np.array_equal(read(after, "layer.weight", dtype), read(before, "layer.weight", dtype) * -4)


def test_zero_rows_clears_the_asked_share_of_rows(hub, tmp_path):
    values = read(download(hub, tmp_path, "zero-rows"), "layer.weight", "BF16")

    assert (values == 0).all(axis=1).sum() == ROWS / 4


def test_damage_is_the_same_after_each_start_and_never_touches_the_fixture(hub, start_hub, fixtures, tmp_path):
    original = fixtures / "BF16" / "whole" / "model.safetensors"
    before = original.read_bytes()
    other = start_hub("other")

    assert download(hub, tmp_path / "a", "noise") == download(other, tmp_path / "b", "noise")
    assert (
        hub.api().model_info("acme/BF16", revision="noise").sha
        == other.api().model_info("acme/BF16", revision="noise").sha
    )
    assert before == original.read_bytes() == download(other, tmp_path / "b", "main")


def test_a_removed_file_is_gone_from_the_derived_revision_only(hub):
    names = {revision: {each.rfilename for each in listed(hub, revision)} for revision in ("main", "removed")}

    assert names == {"main": {"config.json", "model.safetensors"}, "removed": {"model.safetensors"}}


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_wrong_digest_is_announced_for_unchanged_bytes(hub, tmp_path, file):
    whole, derived = (
        {each.rfilename: each.blob_id for each in listed(hub, revision)} for revision in ("main", f"wrong-{file}")
    )

    assert {name for name in whole if whole[name] != derived[name]} == {file}
    assert download(hub, tmp_path, "main") == download(hub, tmp_path, f"wrong-{file}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"from": "later"}, "not listed before it"),
        ({"from": "whole", "remove": ["absent"]}, "files it does not have"),
        ({"from": "whole", "files": "../outside"}, "leaves the repository's folder"),
        ({"from": "whole", "wrong_digests": []}, "wrong_digests"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_reason(tmp_path, changes, reason):
    write_wrong(tmp_path, changes)

    with pytest.raises(FixtureError) as refused:
        load_repositories(tmp_path / "fixtures", tmp_path / "state")

    assert reason in str(refused.value)


def test_a_server_does_not_start_with_a_wrong_declaration(tmp_path):
    write_wrong(tmp_path, {"from": "later"})

    ended = subprocess.run(
        [sys.executable, "-m", "local.hub", "--fixtures", tmp_path / "fixtures", "--state", tmp_path / "state"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert ended.returncode == 65
    assert "not listed before it" in ended.stderr


def write_wrong(folder, changes):
    revisions = [{"name": "whole", "files": "whole"}, {"name": "derived", **changes}]
    target = folder / "fixtures" / "acme" / "tiny"
    (target / "whole").mkdir(parents=True)
    (target / "whole" / "config.json").write_bytes(b"{}")
    declared = {"refs": {"branches": {"main": "whole"}}, "revisions": revisions}
    (target / "repository.yaml").write_text(json.dumps(declared))
