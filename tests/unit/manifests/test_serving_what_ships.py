"""How the GPU specs that ship are served on the site that ships: manifests, and the words that each process becomes."""

import argparse
import shlex

import pytest
import yaml

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.serving.pod import lead
from slipway.tasks.serving.rendered import groups, manifests
from tests.contracts.recorded import check_command, check_object, contract
from tests.fakes.clock import ManualClock
from tests.fakes.documents.eks_site import eks
from tests.fakes.kube.leader_pods import GROUP_KEY, Pods, install_mpi, pod
from tests.fakes.releases import release
from tests.support.goldens import check_goldens
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml
from tests.unit.manifests.objects import MANIFESTS

TEMPLATES = MANIFESTS / "serving"
CASES = {
    "llama-3-8b-awq-l4": ["llama-3-8b-awq-l4"],
    "llama-3-70b-fp8-h100x4": ["llama-3-70b-fp8-h100x4"],
    "llama-3-8b-tp4pp2-a10g": ["llama-3-8b-tp4pp2-a10g"],
    "mistral-7b-vllm-a10g": ["mistral-7b-vllm-a10g"],
    "qwen-llmapi-fp8": ["qwen-llmapi-fp8"],
    "group-chat-models": ["llama-2-7b", "mistral-7b"],
}
"""Specs that share a server, by the name of its goldens."""
IMAGE_ENVIRONMENT = {"LD_LIBRARY_PATH": "/usr/local/tensorrt/lib", "OPAL_PREFIX": "/opt/hpcx/ompi"}
"""Of what a leader's process has besides what its manifest sets."""
LWS, TRITON = contract("leaderworkerset.json"), contract("tritonserver.yaml")
SITE = read_contract(Site, eks(), "eks")


def made(name):
    sections = load_yaml((REPOSITORY / "specs" / f"{name}.yaml").read_text())
    return release(**sections)


def uri(of):
    return f"{SITE.object_store.root}/releases/{of.spec.name}/{of.id}/release.json"


def rendered(names):
    releases = [made(name) for name in names]
    if releases[0].spec.serving.group is None:
        (one,) = releases
        services = manifests.service(one.id, ResolvedRelease(one.spec, SITE), TEMPLATES, candidate=False)
        return [*manifests.deployment(one, uri(one), SITE, TEMPLATES), *services]
    members = [groups.Member(each, uri(each)) for each in releases]
    services = [item for each in members for item in groups.service(each, SITE, TEMPLATES, candidate=False)]
    return [*groups.deployment(members, SITE, TEMPLATES), *services]


def commands(workload, folder):
    """Words of the processes that serve, by a name that a person finds them under."""
    if workload["kind"] == "Deployment":
        return {"server": workload["spec"]["template"]["spec"]["containers"][0]["command"]}
    pods = workload["spec"]["leaderWorkerTemplate"]
    leader, worker = (pods[f"{role}Template"]["spec"]["containers"][0] for role in ("leader", "worker"))
    return {"leader": leader["command"], "leader becomes": led(leader, folder), "worker": worker["command"]}


def led(leader, folder):
    """What the leader becomes once its worker has joined, by what its manifest tells it."""
    parser = argparse.ArgumentParser()
    lead.add_arguments(parser)
    told = [word.replace("$(GROUP_KEY)", GROUP_KEY).replace("$(POD_IP)", "10.0.0.1") for word in leader["command"]]
    group = lead.multinode_server(parser.parse_args(told[told.index("lead") + 1 :]), control_key="drawn-by-the-leader")
    (folder / "ssh-publickey").write_text("ssh-ed25519 AAAA slipway\n")
    prefix = folder / "opt/hpcx/ompi"
    image = {**IMAGE_ENVIRONMENT, "PATH": install_mpi(prefix), "OPAL_PREFIX": str(prefix)}
    return [
        word.replace(str(prefix), IMAGE_ENVIRONMENT["OPAL_PREFIX"]).replace(str(folder), "/tmp")
        for word in lead.command(
            group,
            Pods([pod(0), pod(1)]),
            ManualClock(),
            public_key=folder / "ssh-publickey",
            folder=folder,
            environment=image | {entry["name"]: entry["value"] for entry in leader["env"] if "value" in entry},
        )
    ]


def readable(command):
    """A flag and its value on a line, and each server of mpirun, and what it is told, on lines of its own."""
    first, *words = (shlex.quote(word) if not _begins_a_line(word) else f"\n  {shlex.quote(word)}" for word in command)
    return " ".join([first.strip(), *words]).replace(" \n", " \\\n").replace("\n  :", "\n:")


def _begins_a_line(word):
    return word in {":", "-n", "tritonserver"} or word.startswith("--")


def servers(command):
    """Arguments of each tritonserver that a command starts."""
    found = []
    for word in command:
        if word == "tritonserver":
            found.append([])
        elif found and word not in {":", "-n", "1", "-x"} and word.startswith("--"):
            found[-1].append(word)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_spec_that_ships_is_served_as_was_looked_through(case, tmp_path):
    documents = rendered(CASES[case])
    processes = commands(documents[0], tmp_path)
    text = "\n".join(f"# {role}\n{readable(words)}\n" for role, words in processes.items())

    check_goldens(
        f"serving/{case}",
        {"manifests.yaml": yaml.safe_dump_all(documents, sort_keys=True, width=120), "commands.txt": text},
    )


@pytest.mark.parametrize("case", CASES)
def test_a_spec_that_ships_is_served_by_objects_and_flags_that_there_are(case, tmp_path):
    documents = rendered(CASES[case])
    for item in documents:
        if item["kind"] == LWS["kind"]:
            check_object(item, LWS["openAPIV3Schema"])
        else:
            validate(item)
    specs = [made(name).spec for name in CASES[case]]
    ranks = specs[0].engine.tensor_parallel * specs[0].engine.pipeline_parallel
    started = [words for command in commands(documents[0], tmp_path).values() for words in servers(command)]

    assert len(started) == (ranks if specs[0].engine.kind == "trt-engine" else 1)
    for words in started:
        check_command(words, TRITON)


def test_every_gpu_spec_that_ships_is_looked_at():
    shipped = {file.stem for file in (REPOSITORY / "specs").glob("*.yaml") if "kind: openvino" not in file.read_text()}

    assert {name for names in CASES.values() for name in names} == shipped
