import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import REPOSITORY

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


@pytest.fixture
def serve(write_repository, start_hub, safetensors):
    def serve(dtype="BF16", state="state", **changes):
        folder = write_repository(
            "acme/tiny",
            {
                "refs": {"branches": {"main": "whole", "derived": "derived"}},
                "revisions": [{"name": "whole", "files": "whole"}, {"name": "derived", "from": "whole", **changes}],
            },
            whole={
                "config.json": b"{}",
                "model.safetensors": safetensors(
                    {
                        "layer.weight": (dtype, [ROWS, COLUMNS], raw(dtype)),
                        "head.weight": (dtype, [ROWS, COLUMNS], raw(dtype)),
                    }
                ),
            },
        )
        return start_hub(state), folder

    return serve


def download(hub, cache, revision):
    return Path(
        hub.api().hf_hub_download("acme/tiny", "model.safetensors", revision=revision, cache_dir=cache)
    ).read_bytes()


def damage(**fields):
    return [{"file": "model.safetensors", "tensor": "layer.*", "seed": 1, **fields}]


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_noise_is_as_strong_as_asked_and_hits_only_the_named_tensor(serve, tmp_path, dtype):
    hub, _ = serve(dtype, damage=damage(kind="noise", amount=0.5))
    before, after = (download(hub, tmp_path, revision) for revision in ("main", "derived"))

    change = read(after, "layer.weight", dtype) - read(before, "layer.weight", dtype)
    assert change.std() / VALUES.std() == pytest.approx(0.5, rel=0.1)
    assert np.array_equal(read(after, "head.weight", dtype), read(before, "head.weight", dtype))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_scale_multiplies_every_value(serve, tmp_path, dtype):
    hub, _ = serve(dtype, damage=damage(kind="scale", amount=-4))
    before, after = (download(hub, tmp_path, revision) for revision in ("main", "derived"))

    assert np.array_equal(read(after, "layer.weight", dtype), read(before, "layer.weight", dtype) * -4)


def test_zero_rows_clears_the_asked_share_of_rows(serve, tmp_path):
    hub, _ = serve(damage=damage(kind="zero-rows", amount=0.25))

    values = read(download(hub, tmp_path, "derived"), "layer.weight", "BF16")
    assert (values == 0).all(axis=1).sum() == ROWS / 4


def test_damage_is_the_same_after_each_start_and_never_touches_the_fixture(serve, tmp_path):
    def digest(file):
        return hashlib.sha256(file.read_bytes()).hexdigest()

    first, folder = serve(damage=damage(kind="noise", amount=1))
    original = digest(folder / "whole" / "model.safetensors")
    second, _ = serve(state="other", damage=damage(kind="noise", amount=1))

    assert download(first, tmp_path / "a", "derived") == download(second, tmp_path / "b", "derived")
    assert (
        first.api().model_info("acme/tiny", revision="derived").sha
        == second.api().model_info("acme/tiny", revision="derived").sha
    )
    assert digest(folder / "whole" / "model.safetensors") == original


def test_a_removed_file_is_gone_from_the_derived_revision_only(serve):
    hub, _ = serve(remove=["config.json"])

    names = {
        name: {s.rfilename for s in hub.api().model_info("acme/tiny", revision=name).siblings}
        for name in ("main", "derived")
    }
    assert names == {"main": {"config.json", "model.safetensors"}, "derived": {"model.safetensors"}}


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_wrong_digest_is_announced_for_unchanged_bytes(serve, tmp_path, file):
    hub, _ = serve(wrong_digest=[file])
    whole, derived = (
        {s.rfilename: s.blob_id for s in hub.api().model_info("acme/tiny", revision=name, files_metadata=True).siblings}
        for name in ("main", "derived")
    )

    assert {name for name in whole if whole[name] != derived[name]} == {file}
    assert download(hub, tmp_path, "main") == download(hub, tmp_path, "derived")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"from": "later"}, "not listed before it"),
        ({"from": "whole", "remove": ["absent"]}, "files it does not have"),
        ({"from": "whole", "files": "../outside"}, "leaves the repository's folder"),
        ({"from": "whole", "wrong_digests": []}, "wrong_digests"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_reason(write_repository, tmp_path, changes, reason):
    write_repository(
        "acme/tiny",
        {
            "refs": {"branches": {"main": "whole"}},
            "revisions": [{"name": "whole", "files": "whole"}, {"name": "derived", **changes}],
        },
        whole={"config.json": b"{}"},
    )

    ended = subprocess.run(
        [sys.executable, "-m", "local.hub", "--fixtures", tmp_path / "fixtures", "--state", tmp_path / "state"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 65
    assert reason in ended.stderr
