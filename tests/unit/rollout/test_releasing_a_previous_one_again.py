"""A release that the channel keeps as a previous one is planned again with other settings: the way back stays as it was."""

import contextlib
from argparse import Namespace
from dataclasses import replace

import pytest

from slipway.tasks import jobs
from slipway.tasks.contracts.base import canonical_json, read_contract_json
from slipway.tasks.contracts.measured.drill import DrillRequest
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import RevertRequest, StepResult
from slipway.tasks.pages.model import read_model
from slipway.tasks.pages.reading import StoreReader
from slipway.tasks.pages.run import read_run
from slipway.tasks.serving.rendered.manifests import release_uris
from slipway.tasks.steps import drill, revert
from tests.fakes.counted_load import CountedLoad
from tests.fakes.documents.rollouts import channel, judged, moved
from tests.fakes.hub import MemoryHub
from tests.fakes.kube.cluster import KilledError, in_memory, standing
from tests.fakes.releases import spec
from tests.support.refused import refused

FILES = {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}", "tokenizer_config.json": b"{}"}
REVISIONS = {revision: {**FILES, "model.safetensors": revision.encode()} for revision in ("v1", "v2")}
BACK = RevertRequest(name="demo", run="run-9")
TWO, THREE = ({"replicas": {"min": number, "max": number}} for number in (2, 3))


def connected(workspace):
    """The workspace with a Hub that has two revisions of the model."""
    return replace(workspace, connect_hub=lambda: MemoryHub({"slipway/demo-llama": REVISIONS}))


@pytest.fixture
def workspace(workspace):
    return connected(workspace)


def planned(workspace, revision, run, **sections):
    """Plan a revision of the model as its pod does; the URI of what the run's other steps read."""
    request, uri = (
        PlanRequest(spec=spec(**sections), run=run, revision=revision),
        f"s3://bucket/requests/demo/{run}.json",
    )
    workspace.store.put_bytes(uri, canonical_json(request.model_dump(mode="json")))
    jobs.report(jobs._job(Namespace(step="plan", request=uri), workspace), workspace)
    return read_contract_json(StepResult, workspace.store.read_bytes(workspace.layout.plan("demo", run)), run).release


def step(workspace, name, uri, run):
    """Run a step of a release as its pod does."""
    jobs.report(jobs._job(Namespace(step=name, release=uri, run=run), workspace), workspace)


def ended(workspace, uri, run, verdict):
    """Roll a planned release out, judge it, and end its run."""
    step(workspace, "roll-out", uri, run)
    judged(workspace, workspace.documents.release(uri), verdict)
    step(workspace, "promote" if verdict == "passed" else "roll-back", uri, run)


def released(workspace, revision, run, verdict="passed", **sections):
    uri = planned(workspace, revision, run, **sections)
    ended(workspace, uri, run, verdict)
    return workspace.documents.release(uri)


def replicas(workspace, release_id):
    return workspace.connection.get("Deployment", release_id)["spec"]["replicas"]


@pytest.fixture
def first(workspace):
    """A release with two replicas, which another one has replaced."""
    made = released(workspace, "v1", "run-1", serving=TWO)
    released(workspace, "v2", "run-2")
    return made


def check_way_back(workspace, first):
    """Roll back: what serves is what was promoted, in the channel and in the cluster."""
    revert.run(BACK, workspace)

    assert workspace.documents.release(channel(workspace).live.release_uri) == first
    assert replicas(workspace, first.id) == 2
    assert standing(workspace.connection) == {"deployments": [first.id], "services": {"demo": first.id}, "leases": []}


def test_a_refused_run_leaves_it_warm_as_it_was_promoted(workspace, first):
    again = released(workspace, "v1", "run-3", verdict="failed", serving=THREE)

    assert again.id == first.id
    assert replicas(workspace, first.id) == 2
    check_way_back(workspace, first)


def test_a_refused_run_outside_of_its_group_leaves_no_server_of_its_own(workspace):
    grouped = {"group": "chat"}
    first = released(workspace, "v1", "run-1", serving=grouped)
    released(workspace, "v2", "run-2", serving=grouped)
    before = standing(workspace.connection)

    released(workspace, "v1", "run-3", verdict="failed")

    assert standing(workspace.connection) == before
    revert.run(BACK, workspace)
    assert workspace.documents.release(channel(workspace).live.release_uri) == first
    assert len(standing(workspace.connection)["deployments"]) == 1


def test_a_refused_run_leaves_nothing_where_the_live_release_has_no_room_for_another(workspace):
    released(workspace, "v1", "run-1", serving=TWO)
    released(workspace, "v2", "run-2", rollout={"surge": "none"}, serving=TWO)
    before = standing(workspace.connection)

    released(workspace, "v1", "run-3", verdict="failed", serving=THREE)

    assert standing(workspace.connection) == before


def test_a_run_that_only_planned_it_leaves_it_as_it_was_promoted(workspace, first):
    planned(workspace, "v1", "run-3", serving=THREE)

    check_way_back(workspace, first)


@pytest.mark.parametrize("verdict", ["passed", "failed"])
def test_with_the_same_spec_its_warm_pods_are_not_restarted(verdict, workspace, first):
    warm = workspace.connection.get("Deployment", first.id)
    done = len(workspace.connection.changes)

    again = released(workspace, "v1", "run-3", verdict=verdict, serving=TWO)

    changes = workspace.connection.changes[done:]
    assert [change for change in changes if change.startswith("apply Deployment")] == []
    assert workspace.connection.get("Deployment", first.id) == warm
    assert (again.spec, again.plan.run, channel(workspace).history[0].run) == (first.spec, "run-3", "run-3")
    if verdict == "failed":
        revert.run(BACK, workspace)
    assert workspace.documents.release(channel(workspace).live.release_uri).spec == first.spec
    assert replicas(workspace, first.id) == 2


@pytest.mark.parametrize("killed", ["roll-out", "promote", "roll-back"])
def test_a_run_that_is_killed_at_any_change_of_the_cluster_is_undone_unless_the_channel_names_it(killed, tmp_path):
    number, died = 0, True
    while died:
        workspace = connected(in_memory(tmp_path))
        first = released(workspace, "v1", "run-1", serving=TWO)
        second = released(workspace, "v2", "run-2")
        uri = planned(workspace, "v1", "run-3", serving=THREE)
        again = workspace.documents.release(uri)
        if killed != "roll-out":
            step(workspace, "roll-out", uri, "run-3")
            judged(workspace, again, "passed" if killed == "promote" else "failed")
        done = len(workspace.connection.changes)
        workspace.connection.dies_at = (done + number // 2, ("before", "after")[number % 2])
        with contextlib.suppress(KilledError):
            step(workspace, killed, uri, "run-3")
        died, number = workspace.connection.dies_at is None, number + 1
        workspace.connection.dies_at = None
        step(workspace, "roll-back", uri, "run-3")

        live = workspace.documents.release(channel(workspace).live.release_uri)
        assert live in (again, second)
        assert replicas(workspace, first.id) == (3 if live == again else 2), f"killed at change {number}"
        if live == second:
            check_way_back(workspace, first)
    assert number > 6


def test_a_run_that_is_killed_and_never_rolled_back_leaves_the_way_back_as_it_was_promoted(workspace, first):
    step(workspace, "roll-out", planned(workspace, "v1", BACK.run, serving=THREE), BACK.run)

    check_way_back(workspace, first)


def test_a_promoted_run_makes_its_own_settings_live_and_the_way_back_to_them(workspace, first):
    again = released(workspace, "v1", "run-3", serving=THREE)
    assert (workspace.documents.release(channel(workspace).live.release_uri), replicas(workspace, first.id)) == (
        again,
        3,
    )
    released(workspace, "v2", "run-4")
    released(workspace, "v1", "run-5", verdict="failed", serving=TWO)

    revert.run(BACK, workspace)

    assert workspace.documents.release(channel(workspace).live.release_uri) == again
    assert replicas(workspace, first.id) == 3


def test_a_run_that_was_promoted_and_is_cleared_leaves_what_it_promoted(workspace, first):
    again = released(workspace, "v1", "run-3", serving=THREE)
    released(workspace, "v2", "run-4")
    for serving in (TWO, {"replicas": {"min": 4, "max": 4}}):
        released(workspace, "v1", "run-3", verdict="failed", serving=serving)
        assert replicas(workspace, first.id) == 3

    revert.run(BACK, workspace)

    assert workspace.documents.release(channel(workspace).live.release_uri) == again
    assert replicas(workspace, first.id) == 3


def test_a_run_that_is_cleared_promotes_its_newest_settings_each_time(workspace, first):
    for number in (3, 4, 5):
        again = released(workspace, "v1", "run-3", serving={"replicas": {"min": number, "max": number}})
        assert workspace.documents.release(channel(workspace).live.release_uri) == again
        assert replicas(workspace, first.id) == number
        released(workspace, "v2", f"run-{number + 10}")


def test_a_roll_back_by_a_person_meanwhile_keeps_the_run_off_what_is_live(tmp_path):
    workspace = connected(in_memory(tmp_path, serving={"scaler": {"kind": "hpa"}}))
    scaled = {"autoscale": {"metric": "request_rate", "target": 5}}
    two, three = ({"replicas": {"min": number, "max": 8}, **scaled} for number in (2, 3))
    first = released(workspace, "v1", "run-1", serving=two)
    released(workspace, "v2", "run-2")
    uri = planned(workspace, "v1", "run-3", serving=three)
    check_way_back(workspace, first)
    done = len(workspace.connection.changes)

    with refused(what=f"{first.id} became live by a rollback"):
        step(workspace, "roll-out", uri, "run-3")
    step(workspace, "roll-back", uri, "run-3")

    assert [change for change in workspace.connection.changes[done:] if "lease" not in change.lower()] == []


def test_a_drill_leaves_both_as_they_were_promoted(workspace, first):
    again = released(workspace, "v1", "run-3", serving=THREE)
    released(workspace, "v2", "run-4", serving=TWO)
    released(workspace, "v1", "run-5", verdict="failed", serving=TWO)
    uris = release_uris(workspace.connection.get("Deployment", first.id))

    drill.run(DrillRequest(name="demo", run="run-6"), workspace, load_of=lambda *_: CountedLoad(workspace.clock, 2.0))

    assert replicas(workspace, again.id) == 3
    assert release_uris(workspace.connection.get("Deployment", first.id)) == uris


def test_each_run_s_pages_show_the_release_as_that_run_planned_it(workspace, first):
    promoted = released(workspace, "v1", "run-3", serving=THREE)
    released(workspace, "v2", "run-4")
    tried = released(workspace, "v1", "run-5", verdict="failed", serving={"replicas": {"min": 4, "max": 4}})

    page = read_model("demo", workspace.layout, StoreReader(workspace.store))
    shown = {past.event.run: past.release for past in page.past}
    runs = {run: read_run("demo", run, workspace.layout, StoreReader(workspace.store)).trial.release for run in shown}

    assert (shown["run-1"], shown["run-3"], shown["run-5"]) == (first, promoted, tried)
    assert page.trial.release == tried
    assert runs == shown


def test_another_bucket_has_the_documents_that_the_channel_leads_to(workspace, first):
    again = released(workspace, "v1", "run-3", serving=THREE)
    there = moved(workspace)

    revert.run(BACK.model_copy(update={"to": "live"}), there)

    assert there.documents.release(channel(there).live.release_uri) == again
    fetched = release_uris(workspace.connection.get("Deployment", again.id))
    assert list(fetched.values()) == [channel(there).live.release_uri]


def test_a_lost_document_of_it_is_written_again_for_retention(workspace, first):
    head = workspace.layout.release("demo", first.id)
    workspace.store.delete([head])

    again = released(workspace, "v1", "run-3", serving=THREE)

    assert workspace.documents.release(head) == again
