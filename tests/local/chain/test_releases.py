"""Releases through Airflow's own services, as a person or CI asks for them, while a client goes on asking the model."""

import json
import time

import pytest

from slipway.airflow.runs import run_identity
from slipway.tasks.adapters.kube.workload_state import is_available
from slipway.tasks.contracts.stored.artifact import STAGES
from tests.local.chain.disaster import slipway
from tests.local.chain.own_stack import SPECS
from tests.local.chain.take_over import MEASURED
from tests.local.chain.whole_chain import MODEL, SPEC_FILE
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)


def outcomes(view):
    return {name: task.state for name, task in view.tasks.items()}


def test_a_good_revision_goes_live_and_answers(chain, promoted):
    assert promoted.run.state == "success", chain.said(promoted)
    assert outcomes(promoted)["promote"] == "success"
    assert outcomes(promoted)["roll-back"] == "skipped"
    live = chain.live()
    assert chain.deployments() == {live}
    assert chain.candidate() is None
    assert chain.ask()


def test_the_live_release_is_verified_from_the_hubs_commit_to_its_pod(chain, promoted):
    commit = chain.read(chain.channel(MODEL)["live"]["release_uri"])["plan"]["source"]["commit"]

    done = chain.slipway("explain", MODEL, "--verify")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"verified: slipway/demo-llama at commit {commit[:12]}")
    assert done.stdout.endswith("loaded by 1 of 1 pods\n")


def test_a_commit_that_changes_only_the_readme_starts_one_pod_and_finds_nothing_to_do(chain, promoted):
    before = chain.standing()

    run_id = f"readme-{time.time_ns()}"
    with chain.counting_pods(run=run_identity(run_id)) as pods:
        view = chain.follow(chain.trigger(f"release__{MODEL}", run_id, revision="v1-readme"))

    assert view.run.state == "success"
    assert {name for name, state in outcomes(view).items() if state != "skipped"} == {"plan"}
    assert (pods.problem, list(pods.steps.values())) == (None, ["plan"])
    assert "nothing to do" in view.results["plan"].summary
    assert chain.standing() == before


def test_a_schedule_releases_as_a_person_does(chain, promoted):
    if chain.stack is None:
        pytest.skip("needs an Airflow whose specs a test may change")

    assert promoted.run.run_id.startswith("scheduled__")
    assert promoted.run.state == "success", chain.said(promoted)
    outcomes_of_stages = {stage: promoted.results[stage].outcome for stage in STAGES}
    assert outcomes_of_stages == {**dict.fromkeys(STAGES, "done"), "download": "stored"}


def test_a_plan_alone_changes_nothing_but_its_own_document(chain, promoted):
    if chain.stack is None:
        pytest.skip("needs the specs of this machine's Airflow")
    before = chain.standing()

    view = chain.release("damaged", plan_only=True)

    assert view.run.state == "success"
    assert {name for name, state in outcomes(view).items() if state != "skipped"} == {"plan"}
    assert view.results["plan"].data["action"] == "release"
    assert chain.standing() == before
    _is_what_this_machine_plans(view.results["plan"].data, chain)


def _is_what_this_machine_plans(planned, chain):
    """`slipway plan FILE` comes to the same keys without Airflow, and leaves nothing in the store."""
    before = chain.keys(chain.site.object_store.root)
    done = chain.slipway("plan", SPECS / SPEC_FILE.name, "--revision", "damaged", "--json")

    assert done.returncode == 0, done.stderr
    preview = json.loads(done.stdout)
    assert preview["plan"]["release_id"] == planned["release_id"]
    assert {stage: each["key"] for stage, each in preview["plan"]["stages"].items()} == {
        stage: each["key"] for stage, each in planned["stages"].items()
    }
    assert preview["forecast"]["of"] == planned["live"]
    assert preview["forecast"]["steps"] == planned["forecast"]["steps"]
    assert chain.keys(chain.site.object_store.root) == before


def test_the_next_revision_takes_over_without_a_failed_request_and_the_last_one_stays_warm(chain, taken_over):
    before, after = taken_over.before, taken_over.after

    assert taken_over.view.run.state == "success", chain.said(taken_over.view)
    assert taken_over.traffic.requests > 20
    assert taken_over.traffic.failures == []
    assert (after != before, chain.candidate()) == (True, None)
    assert chain.ask()
    assert is_available(chain.cluster.get("Deployment", before))
    assert chain.deployments() == {before, after}
    assert [entry["release_id"] for entry in chain.channel()["previous"]] == [before]


def test_a_run_goes_on_when_all_of_airflow_was_killed_and_came_back(chain, taken_over):
    if chain.stack is None:
        pytest.skip("needs an Airflow whose processes a test may kill")
    run, tasks = taken_over.view.run, taken_over.view.tasks

    assert taken_over.drill.holder.dag_run == f"{run.dag_id}/{run.run_id}"
    assert {name for name, task in tasks.items() if task.try_number > 1} & MEASURED
    assert tasks["promote"].state == "success"
    assert chain.lease_holder() is None


def test_what_waits_for_approval_is_promoted_by_the_command(chain, taken_over):
    if chain.stack is None:
        pytest.skip("asks for approval on its own stack alone")
    newest = taken_over.channel["history"][0]

    assert taken_over.view.tasks["approval"].state == "success"
    assert (newest["event"], newest["release_id"]) == ("promoted", taken_over.after)


def test_a_rollback_by_the_command_puts_the_release_before_back_without_a_failed_request(
    chain, taken_over, openai_client
):
    taken_back, previous = chain.live(), chain.channel()["previous"][0]["release_id"]

    with chain.traffic() as traffic, openai_client.asking() as count:
        slipway(chain, "rollback", MODEL, "--reason", "a test wants it back")
        until(lambda: previous in count.answered_by)
    openai_client.ask_each("After the rollback")

    assert traffic.requests > 3
    assert traffic.failures == []
    assert chain.live() == previous
    assert chain.deployments() == {previous}
    newest = chain.channel()["history"][0]
    assert (newest["event"], newest["release_id"], newest["reason"]) == (
        "rolled-back",
        taken_back,
        "a test wants it back",
    )
    assert chain.ask()


def test_openais_client_lost_no_request(chain, taken_over, openai_client):
    previous = chain.live()

    assert openai_client.failures == []
    assert [len(releases) for releases in openai_client.releases.values()] == [1, 1, 1]
    before, between, after = (next(iter(releases)) for releases in openai_client.releases.values())
    assert (before, after) == (previous, previous) != (before, between)
    promotion, rollback = openai_client.counts
    assert set(promotion.answered_by) == {before, between} == set(rollback.answered_by)
    assert promotion.answered_by.total() > 20
