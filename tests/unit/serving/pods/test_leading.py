"""A leader's pod: it waits for its workers through the API, then becomes mpirun."""

import argparse
from pathlib import Path

import pytest

from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.serving.pod import lead
from slipway.tasks.serving.rendered import commands
from tests.fakes.clock import ManualClock
from tests.fakes.kube.leader_pods import GROUP_KEY, Pods, install_mpi, pod
from tests.support.refused import refused

GROUP = lead.MultinodeServer(
    GROUP_KEY,
    2,
    4,
    60.0,
    commands.Server("10.0.0.1", 30, "slipway", ranked_model="demo_tensorrt_llm"),
)
KEY = "ssh-ed25519 AAAA slipway"


@pytest.fixture
def command(tmp_path):
    key = tmp_path / "ssh-publickey"
    key.write_text(KEY + "\n")
    path = install_mpi(tmp_path / "hpcx")

    def made(pods, environment=None):
        known = {"PATH": path, **(environment or {})}
        return lead.command(GROUP, pods, ManualClock(), public_key=key, folder=tmp_path, environment=known)

    return made


def test_the_leader_waits_until_every_worker_listens(command):
    pods = Pods(
        [pod(0, ready=False)],
        [pod(0, ready=False), pod(1, address=False)],
        [pod(0, ready=False), pod(1, ready=False)],
        [pod(1), pod(0, ready=False)],
    )

    words = command(pods)

    assert words[words.index("--host") + 1] == "10.0.0.1:4,10.0.0.2:4"
    assert len(pods.answers) == 1


def test_a_worker_that_is_ending_takes_no_ranks(command):
    words = command(Pods([pod(0), pod(1, ending=True)], [pod(0), pod(1)]))

    assert "10.0.0.2:4" in words[words.index("--host") + 1]


def test_a_worker_of_the_leader_before_takes_no_ranks_though_it_is_ready(command):
    left = pod(1, minute=0)
    left["status"]["podIP"] = "10.0.0.9"

    words = command(Pods([pod(0, minute=5), left], [pod(0, minute=5), pod(1, minute=5)]))

    assert words[words.index("--host") + 1] == "10.0.0.1:4,10.0.0.2:4"


def test_workers_that_do_not_come_are_named(command):
    with refused(UnavailableError, what="1 of 2 pods", found="not ready: demo-0-1"):
        command(Pods([pod(0), pod(1, ready=False)]))


def test_every_rank_is_given_the_leaders_environment(command):
    """mpirun exports a variable to the one context that -x stands in."""
    words = command(Pods([pod(0), pod(1)]), {"NCCL_DEBUG": "WARN", "AWS_SECRET_ACCESS_KEY": "no"})
    ranks = " ".join(words).split(" : ")

    assert len(ranks) == 8
    assert all("-x NCCL_DEBUG -x PATH tritonserver" in rank for rank in ranks)
    assert "AWS_SECRET_ACCESS_KEY" not in words


def test_a_worker_proves_that_it_holds_the_groups_key(command, tmp_path):
    words = command(Pods([pod(0), pod(1)]))

    known = (tmp_path / "known_hosts").read_text()
    assert known == f"[10.0.0.1]:2222 {KEY}\n[10.0.0.2]:2222 {KEY}\n"
    assert f"-o UserKnownHostsFile={tmp_path}/known_hosts" in words[words.index("plm_rsh_agent") + 1]


def test_a_group_without_a_key_is_refused(tmp_path):
    path = install_mpi(tmp_path / "hpcx")

    with refused(remedy="serving.mpi_secret"):
        lead.command(
            GROUP,
            Pods([pod(0)]),
            ManualClock(),
            public_key=tmp_path / "absent",
            folder=tmp_path,
            environment={"PATH": path},
        )


def test_other_nodes_are_told_where_their_launcher_lies(command, tmp_path):
    words = command(Pods([pod(0), pod(1)]), {"OPAL_PREFIX": str(tmp_path / "hpcx")})

    assert words[:3] == [f"{tmp_path}/hpcx/bin/mpirun", "--prefix", f"{tmp_path}/hpcx"]


def test_an_mpirun_by_another_name_of_its_folder_is_the_one_of_opal_prefix(command, tmp_path):
    """NVIDIA's images have /usr/local/mpi on PATH, a link to the folder that OPAL_PREFIX names."""
    (tmp_path / "mpi").symlink_to(tmp_path / "hpcx")

    words = command(Pods([pod(0), pod(1)]), {"PATH": f"{tmp_path}/mpi/bin", "OPAL_PREFIX": str(tmp_path / "hpcx")})

    assert words[2] == f"{tmp_path}/mpi"


@pytest.mark.parametrize(
    ("environment", "fields"),
    [
        ({"PATH": "/nowhere"}, {"what": "mpirun is not on PATH", "found": "/nowhere"}),
        ({"PATH": "{tmp}/half/bin"}, {"what": "half/bin/orted is missing", "found": "OPAL_PREFIX not set"}),
        ({"OPAL_PREFIX": "{tmp}/absent"}, {"what": "absent/bin/orted is missing"}),
        ({"OPAL_PREFIX": "{tmp}/other"}, {"what": "two installations", "found": "hpcx/bin/mpirun and "}),
    ],
)
def test_an_image_in_which_no_launcher_would_start_is_refused(command, tmp_path, environment, fields):
    install_mpi(tmp_path / "half", programs=("mpirun",))
    install_mpi(tmp_path / "other")

    with refused(**fields):
        command(Pods([pod(0), pod(1)]), {name: value.format(tmp=tmp_path) for name, value in environment.items()})


def test_the_manifests_arguments_describe_the_group():
    parser = argparse.ArgumentParser()
    lead.add_arguments(parser)
    said = "--group=abc --nodes=2 --ranks-per-node=4 --ranked-model=demo_tensorrt_llm --bind-address=10.0.0.1 --exit-timeout-s=30 --ready-timeout-s=60"

    assert lead.multinode_server(parser.parse_args(said.split()), control_key="$(POD_UID)") == GROUP


def parsed(said):
    parser = argparse.ArgumentParser()
    lead.add_arguments(parser)
    rest = "--group=abc --nodes=2 --ranks-per-node=4 --bind-address=10.0.0.1 --exit-timeout-s=30 --ready-timeout-s=60"
    return lead.multinode_server(parser.parse_args([*said, *rest.split()]), control_key="key")


def test_ranks_of_the_llm_api_start_by_its_launcher_which_alone_knows_which_is_the_server(tmp_path):
    """As tensorrtllm_backend's docs/llmapi.md does by srun: the same words for every rank."""
    key = tmp_path / "ssh-publickey"
    key.write_text(KEY)
    environment = {"PATH": install_mpi(tmp_path / "hpcx"), "TLLM_LOG_LEVEL": "INFO"}

    words = lead.command(
        parsed(["--launcher=trtllm-llmapi-launch"]),
        Pods([pod(0), pod(1)]),
        ManualClock(),
        public_key=key,
        folder=tmp_path,
        environment=environment,
    )

    ranks = words[words.index("-n") :]
    assert ":" not in words
    assert ranks[:2] == ["-n", "8"]
    assert ranks[2:8] == ["-x", "PATH", "-x", "TLLM_LOG_LEVEL", "trtllm-llmapi-launch", "tritonserver"]
    assert {"--http-address=10.0.0.1", "--disable-auto-complete-config"} <= set(ranks)
    assert not [word for word in ranks if " " in word]


def test_a_leader_needs_to_know_what_its_ranks_are():
    with pytest.raises(SystemExit):
        parsed([])


def test_a_server_that_a_launcher_starts_lets_its_models_unload_themselves_too():
    server = commands.Server("10.0.0.1", 30, "slipway", launcher="launch", unloads_models=True, control_key="key")

    words = commands.ranks_on_nodes(
        server, ["10.0.0.1"], 2, mpirun=Path("/opt/bin/mpirun"), ssh_options=(), environment={}
    )

    started = words[words.index("launch") :]
    assert {"--model-control-mode=explicit", "--load-model=*"} <= set(started)
    assert "--http-restricted-api=shared-memory,logging,trace,model-repository:slipway-model-control=key" in started
