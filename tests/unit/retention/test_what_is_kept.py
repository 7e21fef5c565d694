"""Retention deletes what the policy does not keep, and never what is live, warm, deployed, planned or young."""

import itertools
import json

import pytest
from pydantic import ValidationError

from slipway.tasks.adapters.store.heads import Heads
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.retention import Deletion, RetentionPolicy
from slipway.tasks.steps import roll_out
from tests.fakes.stepping import Actor, CrashedError, play
from tests.fakes.store.old_stores import OldStore


def test_releases_that_the_channel_names_keep_their_artifacts_whatever_their_age(old):
    live, previous, gone, newest = (old.release(number, days=400 - number) for number in range(4))
    old.channel(live, previous)

    old.run()

    assert [old.has(made) for made in (live, previous, gone, newest)] == [True, True, False, True]
    assert old.has(live, "download")


def test_the_newest_planned_releases_of_each_model_are_kept(tmp_path):
    old = OldStore(tmp_path, releases_per_model=2)
    made = [old.release(number, days=300 - number) for number in range(4)]
    other = old.release(9, days=390, name="other")

    old.run()

    assert [old.has(each) for each in made] == [False, False, True, True]
    assert old.has(other)


def test_a_release_whose_last_step_is_younger_than_days_is_kept(old):
    running, stale = old.release(1, days=40), old.release(2, days=39)
    old.release(3, days=1)
    with old.at(29):
        old.store.put_bytes(old.layout.result("demo", running.id, "build"), b"{}")

    old.run()

    assert (old.has(running), old.has(stale)) == (True, False)


def test_a_deployed_release_is_kept_as_the_candidate_of_a_run_that_waits_for_a_person(old):
    waiting = old.release(1, days=60)
    old.release(2, days=50)
    roll_out.run(waiting, old.workspace)

    old.run()

    assert old.has(waiting)


def test_an_artifact_of_two_releases_stays_while_one_of_them_does(old):
    gone, kept = old.release(1, days=300), old.release(2, days=200)
    shared = gone.plan.stages["download"]
    stages = {**kept.plan.stages, "download": shared}
    kept = kept.model_copy(update={"plan": kept.plan.model_copy(update={"stages": stages})})
    with old.at(200):
        old.store.put_bytes(old.layout.release("demo", kept.id), kept.model_dump_json().encode())

    old.run()

    assert old.has(gone, "download")
    assert not old.has(gone)


@pytest.mark.parametrize(("days", "kept"), [(1.9, True), (2.1, False)])
def test_what_is_younger_than_the_grace_period_is_kept(old, days, kept):
    prefix = old.artifact("build", "a" * 64, days=days)
    with old.at(days):
        old.store.put_bytes(f"{old.layout.artifact('build', 'b' * 64)}/half", b"half-written")

    old.run()

    assert bool(old.left("artifacts/build/a")) is kept
    assert bool(old.left("artifacts/build/b")) is kept
    assert prefix.endswith("/")


def test_a_use_makes_an_artifact_young_again(old):
    old.artifact("build", "a" * 64, days=100)
    with old.at(1):
        old.workspace.artifacts.use("build", "a" * 64)

    old.run()

    assert old.left("artifacts/build/a")


def test_documents_outlive_artifacts(old):
    old.release(3, days=1)
    artifacts_gone, all_gone = old.release(1, days=60), old.release(2, days=91)
    with old.at(91):
        old.store.put_bytes(old.layout.plan("demo", "run-2"), b"{}")
        old.store.put_bytes(old.layout.revert("demo", "run-2"), b"{}")
        old.store.put_bytes(old.layout.request("demo", "run-2", "plan"), b"{}")
        old.store.put_bytes(old.layout.retention("gc-0") + "report.json", b"{}")
    with old.at(89):
        old.store.put_bytes(old.layout.plan("demo", "run-1"), b"{}")

    old.run()

    left = old.left()
    assert f"releases/demo/{artifacts_gone.id}/release.json" in left
    assert f"releases/demo/{artifacts_gone.id}/evidence/run-1/gate.json" in left
    assert not {uri for uri in left if all_gone.id in uri or "run-2" in uri}
    assert "releases/demo/plans/run-1.json" in left
    assert not old.store.exists(old.layout.retention("gc-0") + "report.json")


def test_old_evidence_of_a_kept_release_goes_and_that_of_a_live_one_stays(old):
    live, newest = old.release(1, days=200), old.release(2, days=100)
    old.channel(live)

    old.run()

    left = old.left("releases/")
    assert f"releases/demo/{live.id}/evidence/run-1/gate.json" in left
    assert f"releases/demo/{newest.id}/release.json" in left
    assert f"releases/demo/{newest.id}/evidence/run-2/gate.json" not in left


def test_copies_of_datasets_are_kept(old):
    with old.at(1000):
        old.store.put_bytes(old.layout.dataset("sha256:" + "a" * 64), b"[]")

    old.run()

    assert old.left("datasets/")


def test_uploads_that_never_ended_are_aborted_after_the_grace_period(old):
    for days in (3, 1):
        with old.at(days):
            old.store.begin_upload(f"{old.layout.artifact('build', 'a' * 64)}/{days}")

    old.run()

    assert [upload.uri[-1] for upload in old.store.unfinished.values()] == ["1"]


def test_uploads_of_others_in_a_bucket_without_a_prefix_are_left_alone(old):
    with old.at(300):
        old.store.begin_upload("s3://bucket/somebody-elses/x")

    old.run()

    assert len(old.store.unfinished) == 1


def test_a_dry_run_names_everything_and_deletes_nothing(old):
    old.release(1, days=300)
    old.release(2, days=3)
    with old.at(3):
        old.store.begin_upload(f"{old.layout.artifact('build', 'a' * 64)}/x")
    before = old.left()

    outcome = old.run(dry_run=True)

    assert old.left() == before
    assert len(old.store.unfinished) == 1
    assert outcome.summary.startswith("would delete 2 artifacts, 1 release, 1 upload, ")
    assert [line.split(":")[0] for line in outcome.data["first"]] == ["would-delete"] * 4


def test_every_deletion_is_in_the_stored_report(old):
    gone = old.release(1, days=300)
    old.release(2, days=3)

    outcome = old.run()

    report = json.loads(old.store.read_bytes(old.layout.retention("gc-1") + "report.json"))
    assert report == outcome.data["report"]
    deletions = [
        Deletion.model_validate_json(line)
        for part in report["parts"]
        for line in old.store.read_bytes(part).splitlines()
    ]
    assert {(each.kind, each.uri, each.outcome) for each in deletions} == {
        ("artifact", f"{old.layout.artifact('download', gone.plan.stages['download'].key)}/", "deleted"),
        ("artifact", f"{old.layout.artifact('publish', gone.plan.stages['publish'].key)}/", "deleted"),
        ("release", f"{old.layout.releases()}demo/{gone.id}/", "deleted"),
    }
    assert {each.objects for each in deletions} == {2, 3}


def test_a_site_without_retention_deletes_nothing_and_says_what_to_add(old):
    object.__setattr__(old.workspace, "site", old.workspace.site.model_copy(update={"retention": None}))

    with pytest.raises(InputError) as caught:
        old.run()

    assert "retention: {}" in caught.value.remedy


@pytest.mark.parametrize("damage", ["channel", "release", "missing"])
def test_nothing_is_deleted_when_it_is_not_known_what_is_needed(old, damage):
    live = old.release(1, days=300)
    old.release(2, days=200)
    old.release(3, days=100)
    old.channel(live)
    uri = old.layout.release("demo", live.id)
    if damage == "channel":
        old.store.put_bytes(old.layout.channel("demo"), b"{")
    elif damage == "release":
        old.store.put_bytes(uri, b"{}")
    else:
        old.store.delete([uri])
    before = old.left()

    with pytest.raises(InputError):
        old.run()

    assert old.left() == before


def test_what_the_store_refuses_is_named_and_tried_again_by_the_next_run(old):
    gone = old.release(1, days=300)
    old.release(2, days=3)
    old.store.protected = {"/weights"}

    with pytest.raises(InputError) as caught:
        old.run()

    assert caught.value.found.startswith("AccessDenied for s3://")
    assert not old.has(gone)
    old.store.protected = set()
    old.workspace.clock.seconds += 3 * 24 * 3600
    old.run(run="gc-2")
    assert not old.left(f"artifacts/publish/{gone.plan.stages['publish'].key}")


def test_retention_goes_on_after_a_removal_of_a_release_was_cut_short_at_any_operation(tmp_path):
    """The removal was written last of all releases, so it must not be taken for the newest one."""
    for dies_after in itertools.count():
        (folder := tmp_path / str(dies_after)).mkdir()
        old = OldStore(folder)
        gone, other = old.release(1, days=300), old.release(2, days=3, name="other")
        newest = old.release(3, days=200)
        killed = Actor(lambda store, _, old=old: old.run(store=store), dies_after=dies_after)
        play([killed], [], old.store, old.workspace.clock)
        for run, days in (("gc-2", 0), ("gc-3", 1), ("gc-4", 3)):
            old.workspace.clock.seconds = days * 24 * 3600
            old.run(run=run)

        assert not old.left(f"releases/demo/{gone.id}"), dies_after
        assert (old.has(newest), old.has(other)) == (True, True), dies_after
        if killed.error is None:
            break
        assert isinstance(killed.error, CrashedError), killed.error


def test_nothing_is_deleted_while_the_live_release_has_a_removal_in_its_place(old):
    live = old.release(1, days=300)
    old.release(2, days=200)
    old.channel(live)
    uri = old.layout.release("demo", live.id)
    Heads(old.store, old.workspace.clock).mark(uri, old.store.read_with_etag(uri)[1])
    before = old.left()

    with pytest.raises(InputError, match=r"release\.json is missing"):
        old.run()

    assert old.left() == before


def test_a_bucket_that_keeps_versions_is_said(old):
    old.release(1, days=300)
    old.release(2, days=3)
    old.store.versioned = True

    assert "lifecycle rule" in old.run().summary


def test_documents_do_not_go_before_artifacts():
    with pytest.raises(ValidationError, match="evidence_days"):
        RetentionPolicy(days=31, evidence_days=30)


def test_a_schedule_that_airflow_cannot_run_is_refused():
    with pytest.raises(ValidationError, match="cron expression"):
        RetentionPolicy(schedule="every night")


def test_adapters_that_a_kept_release_serves_or_served_before_are_kept_and_others_deleted(old):
    live, gone, _ = (old.release(number, days=100 - number) for number in range(3))
    old.channel(live)
    keys = [f"{number:x}" * 64 for number in range(4)]
    for key in keys:
        old.artifact("adapter", key, days=70)
    old.adapters(live, [keys[0]], [keys[1]])
    old.adapters(gone, [keys[2]])

    old.run()

    assert [old.workspace.artifacts.find("adapter", key) is not None for key in keys] == [True, True, False, False]
    assert old.workspace.documents.adapters("demo", live.id).needed == {keys[0], keys[1]}
