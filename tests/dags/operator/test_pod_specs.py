"""Pods of steps: goldens are tests/golden/pods/<engine>-<step>.yaml."""

import json
import re
from typing import get_args

import pytest
import yaml
from kubernetes.client import ApiClient, Configuration

from slipway.airflow.pods import deadline_s, light_objects, step_pod
from slipway.airflow.runs import pod_name, run_identity
from slipway.airflow.site import read_site
from slipway.tasks.contracts.api_keys import OWN_KEY_VARIABLE
from slipway.tasks.contracts.site.authentication import Authentication
from slipway.tasks.contracts.site.signing import KEY_VARIABLE, Signing
from slipway.tasks.contracts.site.site import MlflowSite
from slipway.tasks.contracts.site.telemetry import Telemetry
from slipway.tasks.contracts.spec_fields import GROUP_PATIENCE_S
from slipway.tasks.contracts.step_names import STEPS, Step
from slipway.tasks.contracts.wire.trace_context import trace_parent
from tests.contracts.recorded import check_writable
from tests.contracts.test_written_paths import NEEDS_GPUS
from tests.dags.places import CREDENTIALS, SITE
from tests.fakes.releases import SPEC, release, spec
from tests.support.goldens import GOLDEN, check_golden
from tests.support.refused import refused

ON_GPU = {
    "quantization": {"format": "fp8"},
    "engine": {
        "kind": "trt-engine",
        "gpu": "NVIDIA-L4",
        "tensor_parallel": 2,
        "max_batch_size": 8,
        "max_input_tokens": 128,
        "max_sequence_tokens": 256,
    },
}
GATED = {"source": {"repo": "meta-llama/x", "token_secret": "huggingface/HF_TOKEN"}}
CASES = [("openvino", step) for step in ("plan", "download", "quantize", "assemble", "roll-out", "benchmark", "drill")]


@pytest.mark.parametrize(("engine", "step"), [*CASES, ("trt-engine", "build"), ("trt-engine", "promote")])
def test_the_pod_of_a_step_is_as_reviewed(engine, step):
    asked = spec(**GATED, **(ON_GPU if engine == "trt-engine" else {}))
    pod = ApiClient().sanitize_for_serialization(step_pod(step, asked, read_site(SITE)))

    check_golden(GOLDEN / "pods" / f"{engine}-{step}.yaml", yaml.safe_dump(pod, sort_keys=False))


def test_a_pod_is_merged_without_settings_of_a_client_for_each_of_its_objects(runs, monkeypatch):
    made, setup = [], Configuration.__init__
    monkeypatch.setattr(
        Configuration, "__init__", lambda self, **options: (made.append(self), setup(self, **options))[1]
    )
    monkeypatch.setattr(Configuration, "__deepcopy__", lambda self, memo: (made.append(self), self)[1])
    operator = runs.operator("plan")
    operator.full_pod_spec = step_pod("plan", runs.release.spec, read_site(SITE))

    pod = operator.build_pod_request_obj(dry_run=True)

    assert pod.spec.containers[0].env
    assert len(made) < 10


def test_clients_have_the_settings_that_were_read_before_and_meanwhile(monkeypatch):
    monkeypatch.setattr(Configuration, "_default", None)
    with light_objects(), light_objects():
        assert ApiClient().configuration.host == Configuration().host
    assert Configuration._default is None

    Configuration.set_default(Configuration(host="https://before.test"))
    with light_objects():
        assert ApiClient().configuration.host == "https://before.test"
    assert ApiClient().configuration.host == "https://before.test"

    with light_objects():
        Configuration.set_default(Configuration(host="https://meanwhile.test"))
    assert ApiClient().configuration.host == "https://meanwhile.test"


HARNESS = {"tasks": [{"task": "gsm8k", "at_least": 0.5}]}
QUESTIONS = {"tasks": [{"task": "ours", "questions": "hf://datasets/a/b@main/q.jsonl", "at_least": 0.5}]}


def evaluating(harness):
    return spec(gate={**SPEC["gate"], "harness": harness})


def test_the_pod_of_evaluate_has_the_harness_image_and_no_token_of_the_hub():
    pod = step_pod("evaluate", evaluating(HARNESS), read_site(SITE))

    container = pod.spec.containers[0]
    assert (container.image, pod.spec.service_account_name) == ("slipway/harness:test", "slipway-measurer")
    assert "HF_TOKEN" not in {variable.name for variable in container.env}
    assert container.resources.limits["memory"] == "2Gi"


def test_only_tasks_of_lm_eval_may_read_the_hub(runs):
    assert step_pod("evaluate", evaluating(QUESTIONS), read_site(SITE)).metadata.labels is None
    assert step_pod("benchmark", evaluating(HARNESS), read_site(SITE)).metadata.labels is None
    runs.release = runs.release.model_copy(update={"spec": evaluating(HARNESS)})
    runs.planned()
    runs.ends(runs.result("evaluate"))

    runs.execute("evaluate")

    labels = runs.cluster.created[0]["metadata"]["labels"]
    assert labels["slipway.dev/reads-datasets"] == "true"
    assert labels["slipway.dev/step"] == "evaluate"


@pytest.mark.parametrize("step", sorted(set(get_args(Step)) - NEEDS_GPUS))
def test_a_step_may_write_where_it_was_seen_to_write_and_nowhere_else(step):
    pod = ApiClient().sanitize_for_serialization(step_pod(step, spec(), read_site(SITE)))["spec"]

    check_writable(step, pod["containers"][0], pod)


def test_ranks_on_several_gpus_have_shared_memory_within_a_limit():
    pod = ApiClient().sanitize_for_serialization(step_pod("build", spec(**ON_GPU), read_site(SITE)))["spec"]

    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "5Gi"}} in pod["volumes"]
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


def test_a_created_pod_meets_the_restricted_standard_and_holds_no_secret(runs, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    runs.release = runs.release.model_copy(update={"spec": spec(**GATED)})
    runs.ends(runs.result("plan", data={"plan": runs.release.plan.model_dump(mode="json")}))

    runs.execute("plan")

    pod = runs.cluster.created[0]
    container = pod["spec"]["containers"][0]
    assert len(pod["spec"]["containers"]) == 1
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "huggingface", "key": "HF_TOKEN"}}} in container[
        "env"
    ]
    text = json.dumps([pod, [str(value) for value in runs.xcoms.values()]])
    assert "hf_canary" not in text
    assert CREDENTIALS["password"] not in text


def test_a_token_of_the_hub_reaches_only_the_steps_that_speak_with_the_hub():
    asked = spec(**GATED)

    with_token = {
        step
        for step in ("plan", "download", "quantize", "build", "assemble", "publish", "roll-out", "promote")
        if any(
            variable.name == "HF_TOKEN" for variable in step_pod(step, asked, read_site(SITE)).spec.containers[0].env
        )
    }

    assert with_token == {"plan", "download"}


def test_the_key_for_models_reaches_the_steps_that_ask_them_alone():
    site = read_site(SITE)

    def steps_with_key(site):
        return {
            step
            for step in get_args(Step)
            if any(each.name == OWN_KEY_VARIABLE for each in step_pod(step, spec(), site).spec.containers[0].env)
        }

    assert steps_with_key(site) == set()
    locked = site.serving.model_copy(update={"authentication": Authentication()})
    asking = {"smoke-test", "benchmark", "evaluate", "promote", "drill", "load-adapters"}
    assert steps_with_key(site.model_copy(update={"serving": locked})) == asking


def test_the_private_key_reaches_publish_alone():
    signing = Signing(key_secret="slipway-signing")
    site = read_site(SITE).model_copy(update={"signing": signing})

    found = {
        (step, variable.value_from.secret_key_ref.name, variable.value_from.secret_key_ref.key)
        for step in STEPS
        for variable in step_pod(step, spec(), site).spec.containers[0].env
        if variable.name == KEY_VARIABLE
    }

    assert found == {("publish", "slipway-signing", "private.pem")}


def test_a_key_in_a_service_is_in_no_pod():
    signing = Signing(kms_key="arn:aws:kms:eu-west-1:111122223333:key/1234")
    site = read_site(SITE).model_copy(update={"signing": signing})

    assert KEY_VARIABLE not in {each.name for each in step_pod("publish", spec(), site).spec.containers[0].env}


def test_a_site_without_the_shape_says_what_to_add():
    site = read_site(SITE)
    without = site.model_copy(update={"shapes": {"small": site.shapes["small"]}})

    with refused(what="no shape gpu, which build needs", remedy="Add shapes.gpu to the site file"):
        step_pod("build", spec(**ON_GPU), without)


LOADED = {"engine": {**ON_GPU["engine"], "kind": "vllm", "tensor_parallel": 1}}


def image_and_gpus(step, asked, site):
    container = step_pod(step, asked, site).spec.containers[0]
    return container.image, int(container.resources.limits.get("nvidia.com/gpu", 0))


def test_what_only_passes_files_on_takes_no_gpu():
    site = read_site(SITE)
    site = site.model_copy(
        update={
            "images": site.images.model_copy(update={"serving": {"vllm": "triton-vllm:1"}, "modelopt": "modelopt:1"})
        }
    )
    as_it_is, quantized = (spec(**LOADED, quantization={"format": name}) for name in ("none", "fp8"))

    assert image_and_gpus("quantize", as_it_is, site) == (site.images.tasks, 0)
    assert image_and_gpus("quantize", quantized, site) == ("modelopt:1", 1)
    assert image_and_gpus("build", quantized, site) == (site.images.tasks, 0)
    assert image_and_gpus("assemble", quantized, site) == ("triton-vllm:1", 1)


def gpus_of_steps(site, **engine):
    asked = spec(**{**ON_GPU, "engine": {**ON_GPU["engine"], **engine}})
    return {step: image_and_gpus(step, asked, site)[1] for step in ("quantize", "build", "assemble", "publish")}


def test_ranks_of_one_node_are_made_and_booted_on_a_gpu_each():
    assert gpus_of_steps(read_site(SITE), tensor_parallel=2, pipeline_parallel=2) == {
        "quantize": 4,
        "build": 4,
        "assemble": 4,
        "publish": 0,
    }


def test_a_groups_member_is_booted_in_a_pod_that_has_its_gpu_ids():
    engine = {**ON_GPU["engine"], "tensor_parallel": 1}
    grouped = {**ON_GPU, "engine": engine, "serving": {"group": "chat", "gpus": [2]}}

    assert [image_and_gpus(step, spec(**grouped), read_site(SITE))[1] for step in ("build", "assemble")] == [1, 3]


def test_ranks_of_several_nodes_are_made_on_the_gpus_of_one_and_booted_on_none():
    """assemble only renders them: no pod reaches the other nodes, and an idle node of GPUs costs."""
    asked = spec(**{**ON_GPU, "engine": {**ON_GPU["engine"], "tensor_parallel": 4, "pipeline_parallel": 2}})

    assert gpus_of_steps(read_site(SITE), tensor_parallel=4, pipeline_parallel=2) == {
        "quantize": 4,
        "build": 4,
        "assemble": 0,
        "publish": 0,
    }
    assert "nvidia.com/gpu.product" not in step_pod("assemble", asked, read_site(SITE)).spec.node_selector


def test_a_shape_with_more_gpus_than_ranks_gives_them_to_quantize_alone():
    site = read_site(SITE)
    wide = site.shapes["gpu"].model_copy(update={"gpus": 4})
    site = site.model_copy(update={"shapes": {**site.shapes, "gpu": wide}})

    assert gpus_of_steps(site, tensor_parallel=2) == {"quantize": 4, "build": 2, "assemble": 2, "publish": 0}


def test_quantize_takes_as_many_gpus_as_hold_the_model_before_it_is_smaller(runs):
    runs.release = release(**{**ON_GPU, "engine": {**ON_GPU["engine"], "tensor_parallel": 1}})
    estimate = runs.release.plan.estimate.model_copy(update={"gpu_bytes": 50 * 2**30})
    runs.release = runs.release.model_copy(update={"plan": runs.release.plan.model_copy(update={"estimate": estimate})})
    runs.planned()

    for step in ("quantize", "build"):
        runs.ends(runs.result(step))
        runs.execute(step)

    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in runs.cluster.created]
    assert [each["nvidia.com/gpu"] for each in limits] == ["3", "1"]


def test_a_site_without_modelopt_says_what_to_add():
    with refused(what="no image with ModelOpt", remedy="Add images.modelopt"):
        step_pod("quantize", spec(**LOADED, quantization={"format": "fp8"}), read_site(SITE))


@pytest.mark.parametrize(
    ("run_id", "identity"),
    [
        ("ci-4711", "ci-4711"),
        ("manual__2026-01-01T00:00:00+00:00", "manual__2026-01-01T00-00-00-00-00-[0-9a-f]{8}"),
        ("x" * 80, "x{41}-[0-9a-f]{8}"),
        (":::", "[0-9a-f]{8}"),
    ],
)
def test_a_run_has_an_identity_that_object_names_and_labels_allow(run_id, identity):
    assert re.fullmatch(identity, run_identity(run_id))


def test_runs_whose_ids_differ_only_in_forbidden_characters_stay_apart():
    assert run_identity("a:b") != run_identity("a+b")


def test_a_pods_name_keeps_digest_and_step_of_a_model_with_a_long_name():
    name = "m" * 40

    assert pod_name(name, f"{name}-0123456789ab", "smoke-test") == "m" * 30 + "-0123456789ab-smoke-test"
    assert pod_name("demo", None, "plan") == "demo-plan"


def test_a_model_of_a_group_has_time_to_wait_for_its_turn():
    alone, in_a_group, site = spec(), spec(serving={"group": "duo"}), read_site(SITE)

    assert deadline_s("roll-out", in_a_group, site) - deadline_s("roll-out", alone, site) == GROUP_PATIENCE_S
    assert deadline_s("promote", in_a_group, site) == deadline_s("promote", alone, site)


def test_a_benchmark_that_goes_on_has_its_budget_and_the_turns_that_begin_before_it_ends():
    gates = [{**spec().gate.model_dump(), "benchmark": more} for more in ({}, {"max_requests": 500, "budget_s": 7000})]
    site = read_site(SITE)

    fixed, longer = (deadline_s("benchmark", spec(gate=gate), site) for gate in gates)

    assert longer - fixed > 7000


def test_a_benchmark_at_a_rate_has_the_time_of_its_arrivals():
    gates = [{**spec().gate.model_dump(), "benchmark": {"request_rate": rates}} for rates in ([], [10], [0.01])]
    site = read_site(SITE)

    without, fast, slow = (deadline_s("benchmark", spec(gate=gate), site) for gate in gates)

    assert without < fast < slow
    assert slow - without > 2 * 64 / 0.01


def test_every_step_of_a_run_continues_one_trace_and_reads_what_authenticates_it_from_a_secret():
    traces = {"endpoint": "http://collector.monitoring.svc:4318", "headers_secret": "otel-headers"}
    site = read_site(SITE)
    traced = site.model_copy(update={"telemetry": Telemetry.model_validate({"traces": traces})})

    def environment(step, where, run):
        container = step_pod(step, spec(), where, run=run).spec.containers[0]
        return {variable.name: variable for variable in container.env}

    steps = [environment(step, traced, "run-1") for step in get_args(Step)]
    assert {variables["TRACEPARENT"].value for variables in steps} == {trace_parent("demo", "run-1")}
    assert environment("plan", traced, "run-2")["TRACEPARENT"].value == trace_parent("demo", "run-2")
    headers = steps[0]["OTEL_EXPORTER_OTLP_HEADERS"]
    assert (headers.value, headers.value_from.secret_key_ref.name) == (None, "otel-headers")
    assert not {"TRACEPARENT", "OTEL_EXPORTER_OTLP_HEADERS"} & environment("plan", site, "run-1").keys()


@pytest.mark.parametrize(
    ("source", "steps"), [({"uri": "mlflow:chat@champion"}, {"plan": ("mlflow", "token")}), ({"repo": "org/model"}, {})]
)
def test_only_plan_of_a_model_of_mlflow_reads_mlflows_token_from_its_secret(source, steps):
    mlflow = MlflowSite(endpoint="https://mlflow.example", token_secret="mlflow/token")
    site = read_site(SITE).model_copy(update={"mlflow": mlflow})

    def secret(step):
        variables = {
            variable.name: variable for variable in step_pod(step, spec(source=source), site).spec.containers[0].env
        }
        found = variables.get("MLFLOW_TRACKING_TOKEN")
        return found and (found.value_from.secret_key_ref.name, found.value_from.secret_key_ref.key)

    assert {step: found for step in get_args(Step) if (found := secret(step))} == steps


def test_only_plan_and_download_of_a_model_on_a_volume_mount_it_and_read_only():
    site, on_volume = read_site(SITE), spec(source={"uri": "pvc://models/acme/demo"})

    def mounted(step):
        pod = step_pod(step, on_volume, site).spec
        claims = [each.persistent_volume_claim for each in pod.volumes if each.persistent_volume_claim]
        mounts = [each for each in pod.containers[0].volume_mounts if each.name == "source"]
        variables = [each.value for each in pod.containers[0].env if each.name == "SLIPWAY_VOLUME"]
        assert len(claims) == len(mounts) == len(variables)
        return [(each.claim_name, each.read_only) for each in claims], [each.read_only for each in mounts], variables

    reads = ([("models", True)], [True], ["models=/mnt/source"])
    assert {step: mounted(step) for step in get_args(Step)} == {
        step: reads if step in {"plan", "download"} else ([], [], []) for step in get_args(Step)
    }
    assert not [each for each in step_pod("plan", spec(), site).spec.volumes if each.persistent_volume_claim]


def test_promote_has_time_for_every_look_at_every_step_of_a_canary():
    site = read_site(SITE)
    rollout = {"strategy": "canary", "steps": [5, 25], "mirror": 10, "bake_s": 600, "canary": {"blind_looks": 1}}
    canary = spec(serving={"exposure": "ingress"}, rollout=rollout)
    flip = spec(serving={"exposure": "ingress"}, rollout={"bake_s": 600})

    assert deadline_s("promote", canary, site) - deadline_s("promote", flip, site) >= 600 * 3 * 2


@pytest.mark.parametrize("step", ["roll-out", "promote", "roll-back"])
def test_a_step_that_exchanges_gpus_has_time_for_pods_to_end_and_to_start(step):
    site = read_site(SITE)
    full, none = (
        spec(serving={"ready_timeout_s": 900, "drain_s": 200}, rollout={"surge": surge}) for surge in ("full", "none")
    )

    assert deadline_s(step, none, site) - deadline_s(step, full, site) >= 900 + 2 * 200
    assert deadline_s("smoke-test", none, site) == deadline_s("smoke-test", full, site)
