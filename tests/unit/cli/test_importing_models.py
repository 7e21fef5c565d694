"""`slipway import`: what it says to do next, and which channel of a site it leaves alone."""

from types import SimpleNamespace

import pytest

from slipway.cli.files.backup import export, import_
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.errors import ConflictError
from slipway.tasks.contracts.stored.artifact import STAGES, Layout
from slipway.tasks.contracts.stored.channel import Channel
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.store.old_stores import NOW, OldStore

HERE = Layout("s3://here")


@pytest.fixture
def old(tmp_path):
    """Another site's store, with a live release."""
    made = OldStore(tmp_path)
    made.live, made.later = (made.release(number, days=5 - number, stages=STAGES) for number in range(2))
    made.channel(made.live)
    return made


@pytest.fixture
def here():
    return MemoryObjectStore()


def of_site(store, layout):
    """The context of a command for the site with this store."""
    return SimpleNamespace(obj=lambda: SimpleNamespace(store=lambda: (store, layout)))


def backed_up(old, folder):
    export(of_site(old.store, old.layout), to=str(folder), names=None, only_published=False, replace=False)


def imported(here, folder, *, replace=False):
    import_(of_site(here, HERE), source=str(folder), names=None, only_published=False, replace=replace)


def promote_later(old):
    """A later state of the channel."""
    before = Channel.model_validate_json(old.store.read_bytes(old.layout.channel("demo")))
    uri = old.layout.release("demo", old.later.id)
    after = before.promoted(old.later.id, uri, at=NOW, run="run-9", keep=2)
    old.store.put_bytes(old.layout.channel("demo"), canonical_json(after.model_dump(mode="json")))


def live_of(store):
    return Channel.model_validate_json(store.read_bytes(HERE.channel("demo"))).live.release_id


def test_the_command_that_makes_each_imported_model_serve_comes_last(old, here, tmp_path, capsys):
    empty = Channel(name="empty")
    old.store.put_bytes(old.layout.channel("empty"), canonical_json(empty.model_dump(mode="json")))
    backed_up(old, tmp_path / "backup")
    capsys.readouterr()

    imported(here, tmp_path / "backup")

    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("next: ")] == printed[-1:] == ["next: slipway restore demo"]


def test_an_earlier_channel_is_replaced_in_a_back_up_but_not_at_a_site_that_serves_it(old, here, tmp_path):
    backed_up(old, tmp_path / "backup")
    imported(here, tmp_path / "backup")
    promote_later(old)
    backed_up(old, tmp_path / "backup")

    with pytest.raises(ConflictError) as caught:
        imported(here, tmp_path / "backup")

    assert caught.value.expected == "no channel, or the same one"
    assert "slipway restore demo" in caught.value.remedy
    assert live_of(here) == old.live.id
    assert not here.exists(HERE.release("demo", old.later.id))
    imported(here, tmp_path / "backup", replace=True)
    assert live_of(here) == old.later.id
