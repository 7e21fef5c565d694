"""How servers with GPUs are started: one, several in a pod, several nodes.

What ships is looked at whole by tests/unit/manifests/test_serving_what_ships.py.
"""

import jsonschema
import pytest

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.parser import parse
from slipway.tasks.pod_processes import ADD_ARGUMENTS
from slipway.tasks.serving.rendered import commands, front, manifests
from tests.fakes.documents.gpu_site import MULTINODE, gpu_site
from tests.fakes.documents.rollouts import version
from tests.fakes.releases import SPEC
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.refused import refused

TEMPLATES = REPOSITORY / "k8s_manifests" / "serving"
URI = "s3://bucket/releases/demo/demo-000000000001/release.json"
KUBERNETES = ("1.32", "1.35")


def engine(kind="trt-engine", gpu="NVIDIA-A10G", tensor=1, pipeline=1):
    return {**SPEC["engine"], "kind": kind, "gpu": gpu, "tensor_parallel": tensor, "pipeline_parallel": pipeline}


CASES = {
    "gpu-single": {"engine": engine(gpu="NVIDIA-L4"), "quantization": {"format": "int4_awq"}},
    "gpu-four-in-a-pod": {"engine": engine(tensor=4), "quantization": {"format": "int4_awq"}},
    "gpu-two-nodes": {"engine": engine(tensor=4, pipeline=2), "quantization": {"format": "int4_awq"}},
    "llm-api-two-nodes": {"engine": engine("llmapi", tensor=4, pipeline=2), "quantization": {"format": "none"}},
}


def rendered(case, site=None, **changes):
    return manifests.deployment(version(1, **{**CASES[case], **changes}), URI, site or gpu_site(), TEMPLATES)


def templates_of(item):
    """Pod templates of a workload, by role."""
    if item["kind"] == "Deployment":
        return {"server": item["spec"]["template"]}
    inner = item["spec"]["leaderWorkerTemplate"]
    return {"leader": inner["leaderTemplate"], "worker": inner["workerTemplate"]}


def container(template):
    return template["spec"]["containers"][0]


def contexts(command):
    """Arguments of each rank, as mpirun divides them."""
    ranks = [[]]
    for word in command[command.index("-n") :]:
        ranks = [*ranks, []] if word == ":" else [*ranks[:-1], [*ranks[-1], word]]
    return ranks


@pytest.mark.parametrize("release", KUBERNETES)
@pytest.mark.parametrize("case", CASES)
def test_every_pod_follows_the_schemas_of_kubernetes(case, release):
    for item in rendered(case):
        for role, template in templates_of(item).items():
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": role}}
            validate({**pod, "spec": template["spec"]}, release)
        if item["kind"] == "Deployment":
            validate(item, release)


def test_the_schemas_refuse_a_field_that_pods_do_not_have():
    worker = templates_of(rendered("gpu-two-nodes")[0])["worker"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}, "spec": {**worker["spec"], "shm": "1Gi"}}

    with pytest.raises(jsonschema.ValidationError, match="shm"):
        validate(pod, "1.35")


def test_a_single_gpu_runs_tritonserver_itself_on_that_product():
    template = templates_of(rendered("gpu-single")[0])["server"]

    assert container(template)["command"][0] == "tritonserver"
    assert container(template)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert template["spec"]["nodeSelector"]["nvidia.com/gpu.product"] == "NVIDIA-L4"


def test_several_gpus_of_a_pod_are_ranks_of_mpirun():
    server = container(templates_of(rendered("gpu-four-in-a-pod")[0])["server"])

    assert server["command"][0] == "mpirun"
    assert len(contexts(server["command"])) == 4
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_engines_that_start_their_own_ranks_need_no_mpirun(kind):
    asked = {"engine": engine(kind, tensor=4), "quantization": {"format": "none"}}
    server = container(templates_of(rendered("gpu-four-in-a-pod", **asked)[0])["server"])

    assert server["command"][0] == "tritonserver"


@pytest.mark.parametrize(("kind", "asked"), [("llmapi", False), ("vllm", True)])
def test_triton_completes_configurations_of_vllm_alone_whose_older_releases_need_it(kind, asked):
    sections = {"engine": engine(kind, tensor=4), "quantization": {"format": "none"}}
    server = container(templates_of(rendered("gpu-four-in-a-pod", **sections)[0])["server"])

    assert ("--disable-auto-complete-config" not in server["command"]) is asked


def test_only_rank_0_answers_and_the_others_load_their_share_alone():
    first, *others = contexts(container(templates_of(rendered("gpu-four-in-a-pod")[0])["server"])["command"])

    assert f"--http-port={commands.TRITON_PORTS['http']}" in first
    assert not [word for word in first if word.startswith("--allow-")]
    for other in others:
        assert {"--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"} <= set(other)
        assert {"--model-control-mode=explicit", "--load-model=demo_tensorrt_llm"} <= set(other)
        assert not [word for word in other if word.startswith(("--http-", "--grpc-", "--metrics-"))]


def test_no_two_ranks_share_regions_of_shared_memory():
    ranks = contexts(container(templates_of(rendered("gpu-four-in-a-pod")[0])["server"])["command"])

    assert len({rank[-1] for rank in ranks}) == 4


def test_no_workload_starts_a_shell():
    for case in CASES:
        for template in templates_of(rendered(case)[0]).values():
            words = container(template)["command"]
            assert not {"sh", "bash", "/bin/sh", "/bin/bash", "-c"} & set(words)
            assert "launch_triton_server.py" not in " ".join(words)


def exit_timeout_of(command):
    """Of every server that the command starts; one value."""
    flags = ("--exit-timeout-secs=", "--exit-timeout-s=")
    (seconds,) = {int(word.partition("=")[2]) for word in command if word.startswith(flags)}
    return seconds


@pytest.mark.parametrize("drain_s", [None, 1, 300, 3600])
@pytest.mark.parametrize("case", CASES)
def test_requests_under_way_finish_before_a_pod_is_killed(case, drain_s):
    """The front is empty before SIGTERM, which ranks do not survive. A single server could drain after it as well."""
    pods = templates_of(rendered(case, serving={"drain_s": drain_s})[0])
    template = pods.get("leader") or pods["server"]
    exit_s = exit_timeout_of(container(template)["command"])
    after_s = exit_s if case == "gpu-single" else commands.end_s(2 if case.endswith("two-nodes") else 1)

    assert container(template)["lifecycle"]["preStop"]["exec"]["command"][-1] == f"--requests-s={drain_s or 30}"
    assert exit_s - manifests.UNLOAD_S >= (drain_s or 30)
    needed_s = front.LEAVE_S + (drain_s or 30) + after_s + manifests.SPARE_S
    assert template["spec"]["terminationGracePeriodSeconds"] >= needed_s


@pytest.mark.parametrize("drain_s", [1, 3600])
def test_a_worker_outlives_its_leader(drain_s):
    pods = templates_of(rendered("gpu-two-nodes", serving={"drain_s": drain_s})[0])
    leader_s = pods["leader"]["spec"]["terminationGracePeriodSeconds"]

    *start, last = container(pods["worker"])["lifecycle"]["preStop"]["exec"]["command"]
    parsed = parse([*start[3:], last], ADD_ARGUMENTS)
    assert (start[:3], parsed.step) == (["python", "-m", "slipway.tasks"], "await-ranks")
    assert parsed.at_most_s >= leader_s
    assert pods["worker"]["spec"]["terminationGracePeriodSeconds"] > leader_s


@pytest.mark.parametrize(
    ("case", "ranks"),
    [("gpu-two-nodes", "--ranked-model=demo_tensorrt_llm"), ("llm-api-two-nodes", "--launcher=trtllm-llmapi-launch")],
)
def test_a_leader_is_told_what_its_ranks_are(case, ranks):
    words = container(templates_of(rendered(case)[0])["leader"])["command"]

    assert words[:4] == ["python", "-m", "slipway.tasks", "lead"]
    assert [word for word in words if word.startswith(("--ranked-model", "--launcher"))] == [ranks]


@pytest.mark.parametrize("case", ["gpu-two-nodes", "llm-api-two-nodes"])
def test_more_gpus_than_a_node_has_are_a_leader_and_its_workers(case):
    item = rendered(case)[0]

    assert (item["apiVersion"], item["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    assert item["spec"]["leaderWorkerTemplate"]["size"] == 2
    for template in templates_of(item).values():
        assert container(template)["image"] == MULTINODE
        assert container(template)["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_nodes_run_the_image_with_sshd_whatever_image_serves_on_one():
    pods = templates_of(rendered("gpu-two-nodes", serving={"image": "example.com/without-sshd:1"})[0])

    assert {container(template)["image"] for template in pods.values()} == {MULTINODE}


def test_services_reach_leaders_and_no_workers():
    made = version(1, **CASES["gpu-two-nodes"])
    selector = manifests.service(made.id, ResolvedRelease(made.spec, gpu_site()), TEMPLATES, candidate=False)[0][
        "spec"
    ]["selector"]
    pods = templates_of(rendered("gpu-two-nodes")[0])

    assert selector.items() <= pods["leader"]["metadata"]["labels"].items()
    assert not selector.items() <= pods["worker"]["metadata"]["labels"].items()


def test_only_a_leader_may_ask_the_cluster():
    pods = templates_of(rendered("gpu-two-nodes")[0])

    assert pods["leader"]["spec"]["serviceAccountName"] == "slipway-leader"
    assert pods["worker"]["spec"]["automountServiceAccountToken"] is False


def test_elastic_fabric_adapters_are_given_where_the_site_has_them():
    gpus = {"NVIDIA-A10G": {"memory_gib": 24, "per_node": 4, "architecture": "sm_86", "efa": 1}}
    pods = templates_of(rendered("gpu-two-nodes", gpu_site(gpus=gpus))[0])

    for template in pods.values():
        assert container(template)["resources"]["limits"]["vpc.amazonaws.com/efa"] == "1"
        assert {"name": "FI_PROVIDER", "value": "efa"} in container(template)["env"]


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        (engine("vllm", tensor=4, pipeline=2), {"what": "vllm is served on one node", "remedy": "trt-engine"}),
        (engine(tensor=3, pipeline=2), {"what": "6 GPUs, which cannot be spread evenly over whole nodes"}),
        (engine(tensor=3, pipeline=4), {"what": "12 GPUs, which cannot be spread evenly over whole nodes"}),
        (engine(gpu="NVIDIA-B200"), {"what": "engine.gpu NVIDIA-B200", "found": "NVIDIA-A10G"}),
    ],
)
def test_ranks_that_no_node_shape_gives_are_refused(asked, fields):
    with refused(**fields):
        rendered("gpu-two-nodes", engine=asked, quantization={"format": "none"})


def test_a_name_that_would_make_labels_too_long_is_refused_over_several_nodes():
    made = version(1, **CASES["gpu-two-nodes"], name="a" * 38)

    with refused(found="a name of 38 characters", expected="37 characters"):
        manifests.deployment(made, URI, gpu_site(), TEMPLATES)


def test_a_site_without_an_image_for_several_nodes_is_refused():
    with refused(remedy="Add images.multinode"):
        rendered("gpu-two-nodes", gpu_site(multinode=None))
