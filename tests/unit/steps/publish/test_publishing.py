import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.steps import fetch_repository, publish
from tests.fakes.releases import release
from tests.fakes.workspace import workspace

URI = f"s3://bucket/releases/demo/{release().id}/release.json"


@pytest.fixture
def space(tmp_path):
    return workspace(tmp_path)


@pytest.fixture
def stored(space, tmp_path):
    """Store an artifact of the fake release from files by path."""

    def store(stage, **files):
        folder = tmp_path / f"made-{stage}"
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        key = release().plan.stages[stage].key
        return space.artifacts.store(stage, key, folder, inputs={}, producer={}, metrics={}, seconds=0)

    return store


def test_a_published_repository_has_the_engine_where_the_boot_test_had_it(space, stored, tmp_path):
    stored("assemble", **{"demo/config.pbtxt": b"name", "demo/1/model.py": b"code"})
    stored("build", **{"model.xml": b"graph", "engine.json": b"{}"})

    outcome = publish.run(release(), space)
    fetch_repository.run(release(), URI, space, tmp_path / "models")

    found = {str(path.relative_to(tmp_path / "models")) for path in (tmp_path / "models").rglob("*") if path.is_file()}
    assert found == {"demo/config.pbtxt", "demo/1/model.py", "demo/1/engine/model.xml", "demo/1/engine/engine.json"}
    assert outcome.data["uri"].endswith(release().plan.stages["publish"].key)


def test_the_engine_is_copied_and_never_passes_through(space, stored):
    stored("assemble", **{"demo/config.pbtxt": b"name"})
    stored("build", **{"model.xml": b"graph"})

    publish.run(release(), space)

    assert list(space.scratch.iterdir()) == []


@pytest.mark.parametrize("missing", ["assemble", "build"])
def test_publishing_what_was_not_made_is_refused(space, stored, missing):
    stored({"assemble": "build", "build": "assemble"}[missing], file=b"x")

    with pytest.raises(InputError) as caught:
        publish.run(release(), space)

    assert caught.value.remedy == f"Run {missing} first."


def test_fetching_what_was_not_published_says_what_to_run(space, tmp_path):
    with pytest.raises(InputError) as caught:
        fetch_repository.run(release(), URI, space, tmp_path / "models")

    assert caught.value.remedy.startswith("Run publish first")
