"""What roll-out renders: valid for Kubernetes, restricted, and never anything but values in their places."""

import argparse
import copy
import functools
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from slipway.tasks.adapters.kube.workload_state import LEADER_WORKER_SET, SET_NAME, SET_REVISION, is_available
from slipway.tasks.contracts.api_keys import subject_name
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.authentication import MOST_QUOTAS, Authentication, Quota, TokenIssuer
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.site.store_access import IDENTITY_VARIABLE
from slipway.tasks.serving.openai_api import process
from slipway.tasks.serving.pod import drain, lead
from slipway.tasks.serving.rendered import front, front_keys, manifests
from tests.contracts.recorded import check_object, check_writable, contract
from tests.fakes.documents.eks_site import eks
from tests.fakes.documents.rollouts import version
from tests.fakes.releases import SPEC
from tests.fakes.workspace import site as site_of
from tests.support.goldens import GOLDEN, check_golden
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_all_yaml, load_yaml
from tests.unit.manifests.objects import MANIFESTS, violations

TEMPLATES = MANIFESTS / "serving"
GOLDENS = GOLDEN / "serving"
URI = "s3://bucket/releases/demo/demo-000000000001/release.json"
GPU_ENGINE = {
    **SPEC["engine"],
    "kind": "llmapi",
    "gpu": "NVIDIA-L4",
    "tensor_parallel": 1,
}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
CASES = {
    "local": ("local", {}),
    "eks-replicas": ("eks", {"serving": {"replicas": {"min": 3, "max": 3}}}),
    "eks-gpu": ("eks", {"engine": GPU_ENGINE, "quantization": {"format": "fp8"}}),
}


def site(name):
    document = eks() if name == "eks" else load_yaml((REPOSITORY / "sites" / f"{name}.yaml").read_text())
    return read_contract(Site, document, name)


def rendered(name, changes):
    made, place = version(1, **changes), site(name)
    return [
        *manifests.deployment(made, URI, place, TEMPLATES),
        *manifests.service(made.id, ResolvedRelease(made.spec, place), TEMPLATES, candidate=True),
        *manifests.service(made.id, ResolvedRelease(made.spec, place), TEMPLATES, candidate=False),
    ]


def pods(objects):
    return [item["spec"]["template"]["spec"] for item in objects if item["kind"] == "Deployment"]


@pytest.mark.parametrize("case", ["local", "eks-replicas"])
def test_what_is_rendered_is_what_was_reviewed(case):
    text = yaml.safe_dump_all(rendered(*CASES[case]), sort_keys=True, width=120)

    check_golden(GOLDENS / f"{case}.yaml", text)


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_follows_the_schemas_of_kubernetes(case):
    for item in rendered(*CASES[case]):
        validate(item)


LWS = contract("leaderworkerset.json")
"""What the controller of LeaderWorkerSets takes, and says."""


def over_nodes():
    return next(load_all_yaml((GOLDENS / "llama-3-8b-tp4pp2-a10g" / "manifests.yaml").read_text()))


def test_a_release_over_nodes_follows_the_schema_of_leaderworkersets():
    item = over_nodes()

    assert (item["apiVersion"], item["kind"]) == (f"{LWS['group']}/v1", LWS["kind"])
    check_object(item, LWS["openAPIV3Schema"])


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["spec", "leaderWorkerTemplate", "restartPolicy"], "Always", "is not one of"),
        (["spec", "leaderWorkerTemplate", "sizes"], 2, "'sizes' was unexpected"),
        (["spec", "leaderWorkerTemplate", "size"], "2", "is not of type 'integer'"),
        (["spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurges"], 1, "'maxSurges' was unexpected"),
        (
            ["spec", "leaderWorkerTemplate", "workerTemplate", "spec", "containers", 0, "cmd"],
            [],
            "'cmd' was unexpected",
        ),
        (
            [
                "spec",
                "leaderWorkerTemplate",
                "leaderTemplate",
                "spec",
                "containers",
                0,
                "lifecycle",
                "preStop",
                "sleep",
            ],
            {"seconds": 1, "secs": 1},
            "'secs' was unexpected",
        ),
    ],
)
def test_the_schema_of_leaderworkersets_refuses_what_the_api_would(path, value, words):
    item = place = over_nodes()
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value

    with pytest.raises(jsonschema.ValidationError, match=words):
        check_object(item, LWS["openAPIV3Schema"])


def test_what_is_read_of_a_leaderworkerset_is_what_its_controller_writes():
    status = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 2}
    item = {"kind": LEADER_WORKER_SET, "metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": status}

    check_object({"status": status}, LWS["openAPIV3Schema"])
    assert is_available(item)
    for field in status:
        old = copy.deepcopy(item)
        del old["status"][field]
        assert not is_available(old), f"{field} is not read"


def test_pods_of_a_leaderworkerset_are_told_by_labels_that_they_have():
    leader = over_nodes()["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]
    group = next(entry for entry in leader["env"] if entry["name"] == "GROUP_KEY")

    assert {SET_NAME, SET_REVISION, lead.GROUP_LABEL, lead.INDEX_LABEL} <= set(LWS["pod_labels"])
    assert group["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{lead.GROUP_LABEL}']"
    assert not {entry["name"] for entry in leader["env"]} & set(LWS["pod_environment"]), "the controller sets these"


@pytest.mark.parametrize("case", CASES)
def test_serving_pods_are_restricted_and_write_to_volumes_alone(case):
    for pod in pods(rendered(*CASES[case])):
        assert violations(pod) == []
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["initContainers"], *pod["containers"]]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def containers(pod):
    return [*pod["initContainers"], *pod["containers"]]


@pytest.mark.parametrize("case", CASES)
def test_serving_containers_may_write_where_they_were_seen_to_write_and_nowhere_else(case):
    for pod in pods(rendered(*CASES[case])):
        for container in containers(pod):
            check_writable(container["name"], container, pod)


def test_leaders_and_workers_may_write_what_a_single_server_may():
    template = over_nodes()["spec"]["leaderWorkerTemplate"]
    for pod in (template["leaderTemplate"]["spec"], template["workerTemplate"]["spec"]):
        for container in containers(pod):
            if container["name"] == "node":  # a server's ranks, without a front
                check_writable("triton", container, pod, besides={"/run/front"})
            else:
                check_writable(container["name"], container, pod)


def test_a_container_that_cannot_write_where_its_program_does_is_found():
    pod = pods(rendered("local", {}))[0]
    server = pod["containers"][0]
    server["volumeMounts"] = [mount for mount in server["volumeMounts"] if mount["mountPath"] != "/tmp"]

    with pytest.raises(AssertionError, match="/tmp"):
        check_writable("triton", server, pod)


def test_the_check_for_restricted_pods_finds_what_is_missing():
    pod = pods(rendered("local", {}))[0]
    del pod["securityContext"]
    pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}})

    assert {"triton: root", "triton: seccomp", "triton: privilege escalation", "volume host is a hostPath"} <= set(
        violations(pod)
    )


def test_credentials_are_references_and_only_the_init_container_has_them():
    pod = pods(rendered("local", {}))[0]
    server, fetch = pod["containers"][0], pod["initContainers"][0]

    assert not [entry for entry in server["env"] if "AWS" in entry["name"]]
    keys = {
        entry["name"]: entry
        for entry in fetch["env"]
        if entry["name"].startswith("AWS") and entry["name"] != IDENTITY_VARIABLE
    }
    assert set(keys) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert all("value" not in entry for entry in keys.values())


def test_with_cloud_identities_there_are_no_credentials_at_all():
    text = yaml.safe_dump(pods(rendered("eks", {}))[0])

    assert "secretKeyRef" not in text


def test_quotas_of_a_site_reach_the_front_and_openais_api():
    quotas = {"alice": Quota(requests_per_minute=5, tokens_per_minute=7), "bob": Quota(tokens_per_minute=9)}
    pod = pods(manifests.deployment(version(1), URI, with_quotas(quotas), TEMPLATES))[0]
    commands = {each["name"]: each.get("command") for each in pod["initContainers"]}

    parser = argparse.ArgumentParser()
    process.add_arguments(parser)
    parsed = parser.parse_args(commands["openai"][4:])
    assert (parsed.clients, parsed.turns) == (True, (8, 657))
    assert parsed.tokens_per_minute == [("alice", 7), ("bob", 9)]
    buckets = re.findall(
        r'"value":"(\w+)"}],"token_bucket":{"fill_interval":"60s","max_tokens":(\d+)', str(commands["front"])
    )
    assert set(buckets) == {("alice", "5"), ("bob", str(front_keys.UNLIMITED_REQUESTS))}


def with_quotas(quotas):
    place, access = site("local"), Authentication(quotas=quotas)
    return place.model_copy(update={"serving": place.serving.model_copy(update={"authentication": access})})


def test_the_fronts_argument_holds_all_quotas_that_a_site_may_have_or_is_refused():
    names = [f"team-{number}" for number in range(MOST_QUOTAS)]
    quota = Quota(requests_per_minute=1_000_000, tokens_per_minute=1_000_000_000)
    manifests.deployment(version(1), URI, with_quotas(dict.fromkeys(names, quota)), TEMPLATES)

    long = [f"jwt:{number:0128}" for number in range(MOST_QUOTAS)]
    with pytest.raises(InputError, match="configuration is too long") as caught:
        manifests.deployment(version(1), URI, with_quotas(dict.fromkeys(long, quota)), TEMPLATES)
    assert "`*`" in caught.value.remedy
    with pytest.raises(ValidationError, match="at most 200 items"):
        Authentication(quotas=dict.fromkeys([*names, "one-more"], quota))


def test_the_quota_of_a_subject_counts_for_the_name_that_the_front_gives_it():
    subject, quota = "Carol|1@id.example", Quota(requests_per_minute=5, tokens_per_minute=7)
    pod = pods(manifests.deployment(version(1), URI, with_quotas({f"jwt:{subject}": quota}), TEMPLATES))[0]
    commands = {each["name"]: each["command"] for each in [*pod["initContainers"], *pod["containers"]]}

    assert f"--tokens-per-minute={subject_name(subject)}=7" in commands["openai"]
    assert f'"value":"{subject_name(subject)}"' in str(commands["front"])
    assert subject not in str(commands)


@pytest.mark.parametrize(
    ("quota", "policy", "turns"),
    [(Quota(tokens_per_minute=9), "MAGLEV", "8/450"), (Quota(requests_per_minute=9), "LEAST_REQUEST", "2/112")],
)
def test_only_a_quota_of_tokens_keeps_a_name_at_one_process_where_it_may_have_all_slots(quota, policy, turns):
    limits = replace(front.DEFAULT_LIMITS, batch=8)
    pod = {"models": ["demo"], "cpu": "16", "connection_age_s": 600, "drain_s": 60, "limits": limits}
    values = front.values(with_quotas({"alice": quota}), TEMPLATES, **pod)
    text = values["front"]["config"]

    assert (f'"lb_policy":"{policy}"' in text, "hash_policy" in text) == (True, policy == "MAGLEV")
    assert values["openai"]["turns"] == turns


@pytest.mark.parametrize(
    ("port", "is_one"), [("", True), (":1", True), (":65535", True), (":65536", False), (":0", False)]
)
def test_the_address_of_an_issuers_keys_has_a_port_that_there_is(port, is_one):
    def made():
        return TokenIssuer(issuer="a", audiences=("b",), jwks_uri=f"https://id.example{port}/keys")

    if is_one:
        assert front_keys.jwks_cluster(made().jwks_uri)
    else:
        with pytest.raises(ValidationError, match="expected 1 to 65535"):
            made()


def test_a_site_with_authentication_mounts_the_hashes_of_keys_in_the_front_alone():
    place = site("local")
    place = place.model_copy(update={"serving": place.serving.model_copy(update={"authentication": Authentication()})})
    made = version(1)
    objects = manifests.deployment(made, URI, place, TEMPLATES)

    for item in objects:
        validate(item)
    [pod] = pods(objects)
    [volume] = [each for each in pod["volumes"] if "secret" in each]
    assert volume["secret"]["secretName"] == "slipway-api-keys"
    mounted = {
        container["name"]: mount["mountPath"]
        for container in containers(pod)
        for mount in container["volumeMounts"]
        if mount["name"] == volume["name"]
    }
    [front] = [each for each in pod["initContainers"] if each["name"] == "front"]
    [file] = [each["value"] for each in front["env"] if each["name"] == "SLIPWAY_KEYS"]
    assert mounted == {"front": str(Path(file).parent)}


def longest_drain_s(server):
    """How long the preStop hook of a server may take, read as the hook itself reads it."""
    parser = argparse.ArgumentParser()
    drain.add_arguments(parser)
    *start, last = server["lifecycle"]["preStop"]["exec"]["command"][:4]
    assert (start, last) == (["python", "-m", "slipway.tasks"], "drain")
    parsed = parser.parse_args(server["lifecycle"]["preStop"]["exec"]["command"][4:])
    return parsed.leave_s + parsed.requests_s


@pytest.mark.parametrize("changes", [{}, {"serving": {"drain_s": 600}}])
def test_a_pod_outlives_its_server_and_the_server_its_models(changes):
    pod = pods(rendered("local", changes))[0]
    server = pod["containers"][0]
    flag = next(word for word in server["command"] if word.startswith("--exit-timeout-secs="))
    exit_s, drained_s = int(flag.partition("=")[2]), longest_drain_s(server)
    (drain,) = [entry["value"] for entry in server["env"] if entry["name"] == "SLIPWAY_DRAIN_S"]

    assert drain == ("600" if changes else "30")
    assert exit_s > int(drain)
    assert drained_s >= int(drain)
    assert pod["terminationGracePeriodSeconds"] > exit_s + drained_s


@pytest.mark.parametrize(
    ("asked", "timeout_s", "drain_s"), [(None, 0.2, 1), (None, 119.5, 120), (None, 3600, 3600), (45, 120, 45)]
)
def test_a_request_gets_as_long_to_finish_as_the_benchmark_gives_it_unless_said_otherwise(asked, timeout_s, drain_s):
    gate = {**SPEC["gate"], "benchmark": {"request_timeout_s": timeout_s}}

    assert version(1, serving={"drain_s": asked}, gate=gate).spec.drain_s == drain_s


@pytest.mark.parametrize("drain_s", [0, 3601])
def test_draining_has_bounds(drain_s):
    with pytest.raises(ValidationError, match="drain_s"):
        version(1, serving={"drain_s": drain_s})


def test_the_model_itself_is_asked_whether_it_is_ready_and_a_server_that_lost_a_model_is_started_anew():
    server = pods(rendered("local", {}))[0]["containers"][0]

    assert server["startupProbe"]["exec"]["command"][-1] == "demo"
    assert server["readinessProbe"]["httpGet"]["path"] == "/v2/models/demo/ready"
    assert server["livenessProbe"]["exec"]["command"][-1] == "/v2/health/ready"


@pytest.mark.parametrize("case", CASES)
def test_no_probe_fails_while_a_model_loads(case):
    """Each failed probe is a warning of the pod, and a model may take an hour to load."""
    for pod in pods(rendered(*CASES[case])):
        sidecars = [each for each in pod["initContainers"] if each.get("restartPolicy") == "Always"]
        asked = [each[probe].get("httpGet", {}).get("path") for each in sidecars for probe in PROBES if probe in each]
        assert set(asked) <= {"/live", "/health/live", None}, "a sidecar does not wait for the model"
        start = pod["containers"][0]["startupProbe"]
        [within] = [word for word in start["exec"]["command"] if word.startswith("--within-s=")]
        assert (start["failureThreshold"], start["timeoutSeconds"]) == (1, int(within.partition("=")[2]) + 10)


def test_an_update_never_takes_a_pod_before_the_next_one_is_available():
    item = rendered("local", {})[0]

    assert item["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_one_replica_has_no_disruption_budget_and_several_have():
    kinds = {case: [item["kind"] for item in rendered(*CASES[case])] for case in ("local", "eks-replicas")}

    assert kinds["local"] == ["Deployment", "Service", "Service"]
    assert kinds["eks-replicas"] == ["Deployment", "PodDisruptionBudget", "Service", "Service"]


def test_only_the_live_service_stands_behind_a_load_balancer():
    objects = rendered("eks", {"serving": {"exposure": "load-balancer"}})

    types = {item["metadata"]["name"]: item["spec"]["type"] for item in objects if item["kind"] == "Service"}
    assert types == {"demo-candidate": "ClusterIP", "demo": "LoadBalancer"}


def test_an_engine_for_gpus_is_served_on_that_product():
    pod = pods(rendered(*CASES["eks-gpu"]))[0]

    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in pod["initContainers"][0]["resources"]["limits"]
    assert pod["nodeSelector"]["nvidia.com/gpu.product"] == "NVIDIA-L4"


def test_an_engine_that_spans_nodes_is_refused_in_words():
    engine = {**GPU_ENGINE, "gpu": "NVIDIA-A10G", "tensor_parallel": 4, "pipeline_parallel": 2}

    with refused(what="vllm is served on one node"):
        rendered("eks", {"engine": {**engine, "kind": "vllm"}, "quantization": {"format": "fp8"}})


def test_a_site_without_the_image_is_refused_in_words():
    with refused(remedy="images.serving.llmapi"):
        manifests.deployment(
            version(1, engine=GPU_ENGINE, quantization={"format": "fp8"}),
            URI,
            site_of(
                shapes={"gpu": {"cpu": "1", "memory": "1Gi", "scratch": "1Gi", "gpus": 1}},
                gpus={"NVIDIA-L4": {"memory_gib": 24, "per_node": 1, "architecture": "sm_89"}},
            ),
            TEMPLATES,
        )


def test_a_changed_manifest_is_told_from_the_one_that_stands():
    digests = [
        rendered("local", {"serving": {"ready_timeout_s": seconds}})[0]["metadata"]["annotations"][manifests.MANIFEST]
        for seconds in (60, 60, 61)
    ]

    assert digests[0] == digests[1] != digests[2]


EXPANDED_OR_CONTROL = re.compile(r"\$[$(]|[\x00-\x1f\x7f]")
NASTY = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60) | st.sampled_from(
    [
        '"',
        "x: y",
        "a\nb: c",
        "{{ name }}",
        "*labels",
        "# no",
        "x}\n---\nkind: Secret",
        "- a",
        "\u2028",
        "true",
        "1e3",
        "😀",
    ]
)


@given(text=NASTY)
@settings(max_examples=30, deadline=None)  # the front's configuration is rendered again for every new address
def test_no_value_becomes_structure(text):
    """Not even one that the contracts would refuse."""
    place = site_of()
    place = place.model_copy(update={"serving": place.serving.model_copy(update={"bind_address": text})})
    image = f"image{text}"
    made = version(1)
    made_spec = made.spec.model_copy(update={"serving": made.spec.serving.model_copy(update={"image": image})})
    made = made.model_copy(update={"spec": made_spec})

    try:
        found = manifests.deployment(made, URI, place, TEMPLATES)
    except InputError:
        assert EXPANDED_OR_CONTROL.search(text)
        return

    assert [shape_of(item) for item in found] == plain_shape()
    pod = pods(found)[0]
    assert pod["containers"][0]["image"] == pod["initContainers"][0]["image"] == image
    assert f"--http-address={text}" in pod["containers"][0]["command"]


@functools.cache
def plain_shape():
    made = version(1, serving={"image": "image"})
    return [shape_of(item) for item in manifests.deployment(made, URI, site_of(), TEMPLATES)]


def shape_of(value):
    """A document without its scalars."""
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    return [shape_of(item) for item in value] if isinstance(value, list) else type(value).__name__


def test_a_value_that_a_template_misses_is_an_error(tmp_path):
    (tmp_path / "service.yaml.j2").write_text("name: {{ nmae | tojson }}")

    with refused(what="nmae"):
        manifests.service("demo-1", ResolvedRelease(version(1).spec, site_of()), tmp_path, candidate=False)


def test_every_value_of_a_template_is_written_as_json():
    for template in Path(TEMPLATES).glob("*.j2"):
        for line in template.read_text().splitlines():
            for place in line.split("{{")[1:]:
                expression = place.split("}}")[0].strip()
                safe = "tojson" in expression or expression.startswith("ports.") or expression in NUMBERS
                assert safe, f"{template.name}: {line.strip()}"


NUMBERS = {"replicas", "grace_s", "ready_timeout_s", "ready_timeout_s + 60"}
