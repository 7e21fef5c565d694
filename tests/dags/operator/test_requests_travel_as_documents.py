"""Whatever a person writes reaches plan and revert as a document, and never the command of a pod."""

import json
import re

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client import ApiClient
from pydantic import ValidationError

from slipway.airflow.pods import step_pod
from slipway.airflow.site import read_site
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.kubernetes_text import container_values
from slipway.tasks.contracts.measured.drill import DrillRequest
from slipway.tasks.contracts.spec.rollout import DrillSettings
from slipway.tasks.contracts.step_names import STEPS
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import RevertRequest
from tests.dags.places import SITE
from tests.dags.step_runs import LAYOUT, RUN
from tests.fakes.kube.kubernetes_expansion import expanded
from tests.fakes.releases import SPEC, spec

FIXED = re.compile(r"[A-Za-z0-9._:/-]+")
HOSTILE = ["$(AWS_SECRET_ACCESS_KEY)", "$$(HOME)", "\"'`", "$(", "--force", "é$(HOME)"]
SECRETS = {"AWS_SECRET_ACCESS_KEY": "the secret", "HOME": "/root"}


def request_of(runs, step):
    stored = runs.bucket.Object(LAYOUT.request("demo", RUN, step).removeprefix("s3://slipway/"))
    return json.loads(stored.get()["Body"].read())


def command_of(runs):
    return runs.cluster.created[-1]["spec"]["containers"][0]["command"]


def end_well(runs, step):
    data = {"plan": runs.release.plan.model_dump(mode="json")} if step == "plan" else {}
    runs.ends(runs.result(step, data=data))


def test_plan_is_told_the_spec_the_run_and_the_parameters(runs):
    end_well(runs, "plan")

    runs.execute("plan", revision="v2", force=True, plan_only=True)

    assert command_of(runs) == [
        "python",
        "-m",
        "slipway.tasks",
        "plan",
        "--request",
        LAYOUT.request("demo", RUN, "plan"),
    ]
    asked = PlanRequest.model_validate(request_of(runs, "plan"))
    site = read_site(SITE).digest
    spec = runs.release.spec
    assert asked == PlanRequest(spec=spec, run=RUN, revision="v2", force=True, plan_only=True, site=site)


FOREIGN = {"name": "other", "run": "other", "spec": {"name": "other"}, "model": "other", "release": "s3://other/x"}


def test_parameters_that_name_another_model_spec_or_run_change_nothing(runs):
    end_well(runs, "plan")

    runs.execute("plan", **FOREIGN)
    with pytest.raises(AirflowException, match="its result is missing"):
        runs.execute("revert", reason="", to="previous", **FOREIGN)

    planned, reverted = (json.dumps(request_of(runs, step)) for step in ("plan", "revert"))
    assert (runs.release.spec.name, RUN) == (json.loads(planned)["spec"]["name"], json.loads(reverted)["run"])
    assert not [word for word in (planned, reverted, *command_of(runs)) if "other" in word]


def test_revert_is_told_why(runs):
    end_well(runs, "revert")

    with pytest.raises(AirflowException, match="its result is missing"):
        runs.execute("revert", reason="it said $(AWS_SECRET_ACCESS_KEY)", to="previous")

    assert command_of(runs) == [
        "python",
        "-m",
        "slipway.tasks",
        "revert",
        "--request",
        LAYOUT.request("demo", RUN, "revert"),
    ]
    asked = RevertRequest.model_validate(request_of(runs, "revert"))
    assert asked == RevertRequest(name="demo", run=RUN, reason="it said $(AWS_SECRET_ACCESS_KEY)")


def test_a_drill_is_told_what_its_spec_says(runs):
    drill = {"schedule": "@monthly", "request_rate": 3.5, "seconds": 20}
    runs.release = runs.release.model_copy(update={"spec": spec(rollout={"drill": drill})})
    runs.ends(runs.result("drill", data={"verdict": "passed"}))

    runs.execute("drill")

    assert command_of(runs) == [
        "python",
        "-m",
        "slipway.tasks",
        "drill",
        "--request",
        LAYOUT.request("demo", RUN, "drill"),
    ]
    asked = DrillRequest.model_validate(request_of(runs, "drill"))
    assert asked == DrillRequest(name="demo", run=RUN, settings=DrillSettings(**drill))


def test_a_prompt_of_200_kb_reaches_plan_although_no_argument_could_hold_it(runs):
    long = [{"prompt": "é$(HOME)" * 25_000, "answer": "Four."}]
    runs.release = runs.release.model_copy(update={"spec": spec(gate={**SPEC["gate"], "smoke": long})})
    end_well(runs, "plan")

    runs.execute("plan")

    assert sum(map(len, command_of(runs))) < 200
    assert PlanRequest.model_validate(request_of(runs, "plan")).spec == runs.release.spec


def test_a_retry_writes_the_same_request(runs):
    end_well(runs, "plan")
    runs.execute("plan")
    first = request_of(runs, "plan")
    runs.execute("plan")

    assert request_of(runs, "plan") == first


@pytest.mark.parametrize("revision", HOSTILE)
def test_a_revision_is_data_and_nothing_of_it_is_in_the_pod(runs, revision):
    end_well(runs, "plan")

    runs.execute("plan", revision=revision)

    assert request_of(runs, "plan")["revision"] == revision
    (pod,) = runs.cluster.created
    assert all(FIXED.fullmatch(word) for word in command_of(runs))
    assert [expanded(value, SECRETS) for value in container_values(pod)] == container_values(pod)
    assert revision not in json.dumps(pod)


@pytest.mark.parametrize("revision", ["a\nb", "x" * 2**20, "a\x00b", "a\x1b[2J", "a b", ""])
def test_a_revision_that_no_branch_can_have_is_refused_before_a_pod(runs, revision):
    with pytest.raises(AirflowFailException, match=r"plan: the parameters of run .*: revision: "):
        runs.execute("plan", revision=revision)

    assert runs.cluster.asked == []


def test_a_store_that_does_not_take_the_request_names_the_permission(runs):
    runs.bucket.delete()

    with pytest.raises(AirflowException, match=r"aws_default has s3:PutObject below requests/") as caught:
        runs.execute("plan")

    assert not isinstance(caught.value, AirflowFailException)
    runs.bucket.create()


TEXTS = st.text(max_size=30) | st.sampled_from([*HOSTILE, "a\nb", "a\x00b", "x" * 2**20])
PLACES = [
    (part, name)
    for part, names in {
        "source": ("repo", "revision", "token_secret"),
        "serving": ("image", "group"),
        "engine": ("gpu",),
        "": ("name", "schedule"),
    }.items()
    for name in names
]


@given(place=st.sampled_from(PLACES), text=TEXTS, step=st.sampled_from(STEPS))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_of_a_spec_changes_what_a_steps_process_is_given(place, text, step):
    part, name = place
    sections = {name: text} if not part else {part: {**SPEC.get(part, {}), name: text}}
    try:
        pod = step_pod(step, spec(**sections), read_site(SITE))
    except (ValidationError, InputError):
        return
    manifest = ApiClient().sanitize_for_serialization(pod)

    assert [expanded(value, SECRETS) for value in container_values(manifest)] == container_values(manifest)
