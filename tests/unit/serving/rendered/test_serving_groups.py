"""Several models in one server: what a group's Deployment holds, and what a member's release changes of it."""

import pytest
from pydantic import ValidationError

from slipway.tasks.serving.rendered import front, groups, manifests
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.releases import SPEC, release, spec
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.refused import refused

TEMPLATES = REPOSITORY / "k8s_manifests" / "serving"
SITE = gpu_site()


def asked(gpus=(0,), kind="vllm", group="chat", **engine):
    return {
        "quantization": {"format": "none"},
        "engine": {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-A10G", **engine},
        "serving": {"group": group, "gpus": list(gpus)},
    }


def member(name, number=1, gpus=(0,), **changes):
    made = release(name=name, **{**asked(gpus), **changes})
    made = made.model_copy(update={"id": f"{name}-{number:012x}"})
    return groups.Member(made, f"s3://bucket/releases/{name}/{made.id}/release.json")


LLAMA, MISTRAL = member("llama-2-7b", 1, [0]), member("mistral-7b", 1, [1])


def rendered(*members):
    return groups.deployment(members, SITE, TEMPLATES)


def pod(item):
    return item["spec"]["template"]["spec"]


@pytest.mark.parametrize("kubernetes", ["1.32", "1.35"])
def test_a_groups_objects_follow_the_schemas_of_kubernetes(kubernetes):
    for item in [*rendered(LLAMA, MISTRAL), *groups.service(LLAMA, SITE, TEMPLATES, candidate=True)]:
        validate(item, kubernetes)


def test_one_server_fetches_every_members_release_and_has_all_their_gpus():
    item = rendered(LLAMA, MISTRAL)[0]

    *steps, connections, api = pod(item)["initContainers"]
    fetched = {step["name"]: step["command"][-3] for step in steps}
    assert (connections["name"], api["name"]) == ("front", "openai")
    assert [word for word in api["command"] if word.startswith("--model")] == [
        "--model=llama-2-7b",
        "--model=mistral-7b",
    ]
    assert fetched == {"fetch-llama-2-7b": LLAMA.release_uri, "fetch-mistral-7b": MISTRAL.release_uri}
    assert pod(item)["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_a_members_release_leaves_the_other_models_as_they_are():
    before = rendered(*groups.replaced([LLAMA, MISTRAL], LLAMA))[0]
    after = rendered(*groups.replaced([LLAMA, MISTRAL], member("llama-2-7b", 2, [0])))[0]

    assert before["metadata"]["name"] != after["metadata"]["name"]
    changed = [
        (one["name"], other["name"])
        for one, other in zip(pod(before)["initContainers"], pod(after)["initContainers"], strict=True)
        if one != other
    ]
    # clients of OpenAI's API read the combination that answers
    assert changed == [("fetch-llama-2-7b", "fetch-llama-2-7b"), ("openai", "openai")]
    assert pod(before)["containers"] == pod(after)["containers"]


def test_a_shared_server_drains_as_long_as_the_slowest_of_its_models():
    slow = member("slow", serving={"group": "chat", "gpus": [1], "drain_s": 300})
    found = pod(rendered(LLAMA, slow)[0])
    server = found["containers"][0]

    assert {"name": "SLIPWAY_DRAIN_S", "value": "300"} in server["env"]
    assert f"--exit-timeout-secs={300 + manifests.UNLOAD_S}" in server["command"]
    assert "--requests-s=300" in server["lifecycle"]["preStop"]["exec"]["command"]
    assert found["terminationGracePeriodSeconds"] > front.LEAVE_S + 300 + 300 + manifests.UNLOAD_S


def test_a_shared_server_keeps_connections_as_briefly_as_the_first_of_its_models_allows():
    brief = member("brief", serving={"group": "chat", "gpus": [1], "connection_age_s": 7})
    (fronts,) = [each for each in pod(rendered(LLAMA, brief)[0])["initContainers"] if each["name"] == "front"]

    assert fronts["command"][-1].count('"max_connection_duration":"7s"') == 2


def test_a_service_reaches_the_servers_of_its_own_release_and_of_no_other():
    new = member("llama-2-7b", 2, [0])
    old, next_one = rendered(LLAMA, MISTRAL)[0], rendered(*groups.replaced([LLAMA, MISTRAL], new))[0]

    def reached(of):
        selector = groups.service(of, SITE, TEMPLATES, candidate=False)[0]["spec"]["selector"]
        return [selector.items() <= item["spec"]["template"]["metadata"]["labels"].items() for item in (old, next_one)]

    assert reached(LLAMA) == [True, False]
    assert reached(new) == [False, True]
    assert reached(MISTRAL) == [True, True]


def test_the_same_releases_are_the_same_server_in_whatever_order():
    assert groups.server_name([LLAMA, MISTRAL]) == groups.server_name([MISTRAL, LLAMA])


def test_a_pod_carries_a_release_so_that_clients_may_reach_it():
    labels = rendered(LLAMA, MISTRAL)[0]["spec"]["template"]["metadata"]["labels"]

    assert labels[manifests.RELEASE_LABEL] == groups.server_name([LLAMA, MISTRAL])


def test_labels_stay_within_what_kubernetes_allows():
    labels = rendered(member("a" * 40))[0]["metadata"]["labels"]

    assert all(len(key.rpartition("/")[2]) <= 63 and len(value) <= 63 for key, value in labels.items())


@pytest.mark.parametrize(
    ("members", "fields"),
    [
        (
            [LLAMA, member("mistral-7b", 1, [0])],
            {"what": "GPU 0 of group chat", "found": "llama-2-7b and mistral-7b"},
        ),
        ([LLAMA, member("llama-2-7b", 2, [1])], {"found": "two of llama-2-7b"}),
        ([LLAMA, member("far", 1, [4])], {"what": "serving.gpus [4]", "found": "4 NVIDIA-A10G on a node"}),
        (
            [LLAMA, member("other", 1, **asked([1], group="search"))],
            {"found": "chat, search", "remedy": "serving.group"},
        ),
        ([LLAMA, member("other", 1, **asked([1], gpu="NVIDIA-L4"))], {"what": "one pod with one GPU product"}),
        ([LLAMA, member("other", 1, **asked([1], kind="llmapi"))], {"what": "one pod with one image"}),
    ],
)
def test_members_that_cannot_share_a_server_are_refused(members, fields):
    with refused(**fields):
        rendered(*members)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"serving": {"gpus": [0]}}, "gpus divides a server between the models of a group"),
        ({"serving": {"group": "chat", "gpus": [0, 0]}}, "names a GPU twice"),
        ({"serving": {"group": "Chat"}}, "pattern"),
        (asked([]), "names 0 GPUs, tensor_parallel x pipeline_parallel is 1"),
        (asked([0, 1], tensor_parallel=2), "in a group vllm runs on one GPU"),
        (asked([0, 1], kind="trt-engine", tensor_parallel=2), "in a group trt-engine runs on one GPU"),
    ],
)
def test_a_spec_that_no_group_can_hold_is_refused(changes, words):
    with pytest.raises(ValidationError, match=words):
        spec(**changes)


def test_llmapi_takes_several_chosen_gpus_in_a_group():
    assert spec(**asked([2, 3], kind="llmapi", tensor_parallel=2)).serving.gpus == (2, 3)


def test_a_grouped_release_is_not_rendered_as_if_it_were_alone():
    with refused(what="group chat", remedy="Remove serving.group"):
        manifests.deployment(LLAMA.release, LLAMA.release_uri, SITE, TEMPLATES)
