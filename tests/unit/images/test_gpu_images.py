"""Images with GPUs, as far as they can be checked without building them."""

import re
from pathlib import Path

import pytest

from tasks.engines.trt_commands import BUILD, PYTHON
from tasks.rollout import launch, lead

ROOT = Path(__file__).parents[3]
IMAGES = ("tasks-gpu", "tasks-modelopt", "triton-multinode")
LOCKS = ("tasks-gpu", "modelopt")


def dockerfile(name):
    return (ROOT / "images" / name / "Dockerfile").read_text()


def settings(name):
    lines = (ROOT / "images" / "triton-multinode" / name).read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip() and line[0] != "#" and " " in line.strip())


@pytest.mark.parametrize("name", IMAGES)
def test_every_file_that_an_image_copies_exists(name):
    for line in dockerfile(name).splitlines():
        if line.startswith("COPY"):
            sources = [word for word in line.split()[1:-1] if not word.startswith("--")]
            assert sources
            assert all((ROOT / source).exists() for source in sources), line


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_ends_as_the_user_that_its_pods_run_as(name):
    users = re.findall(r"^USER (\S+)$", dockerfile(name), re.MULTILINE)

    assert users[-1] == "10001"


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_has_hashes(name):
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    packages = re.findall(r"^[a-z0-9][^\s]*==[^\s]+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)

    assert len(packages) == len(re.findall(r"^[a-z0-9][^\s]*==", text, re.MULTILINE)) > 20


def test_tensorrt_llms_image_keeps_its_own_numpy_and_torch():
    lock = (ROOT / "requirements" / "tasks-gpu.lock").read_text()

    assert not re.search(r"^(numpy|torch|nvidia-modelopt|transformers)==", lock, re.MULTILINE)


def test_tensorrt_llms_scripts_run_beside_the_steps_packages_and_not_among_them():
    linked = re.findall(r"ln -s (\S+) /opt/slipway/bin/(\S+)", dockerfile("tasks-gpu"))

    assert linked == [("/usr/bin/python3", "python")]
    assert "find /opt/slipway/bin -mindepth 1 -delete" in dockerfile("tasks-gpu")
    assert not {PYTHON, BUILD} & {name for _, name in linked}


def test_tools_that_only_train_or_draw_stay_out_of_modelopts_environment():
    lock = (ROOT / "requirements" / "modelopt.lock").read_text()

    assert "nvidia-modelopt==0.47.0" in lock
    assert not re.search(r"^(torch|torchvision|deepspeed|diffusers)==", lock, re.MULTILINE)


def test_workers_let_in_one_user_by_key_and_give_no_terminal():
    sshd = settings("sshd_config")

    assert sshd["AllowUsers"] == settings_of_client()["User"] == "slipway"
    assert (sshd["AuthenticationMethods"], sshd["PasswordAuthentication"]) == ("publickey", "no")
    assert (sshd["DisableForwarding"], sshd["PermitTTY"], sshd["UsePAM"]) == ("yes", "no", "no")


def settings_of_client():
    return {name: value for name, value in settings_lines() if name != "Host"}


def settings_lines():
    text = (ROOT / "images" / "triton-multinode" / "ssh_config").read_text()
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_the_leader_talks_to_no_worker_that_it_does_not_know():
    client = settings_of_client()

    assert (client["StrictHostKeyChecking"], client["BatchMode"]) == ("yes", "yes")


def test_both_ends_of_a_connection_agree_with_what_is_rendered():
    keys = str(lead.PUBLIC_KEY.parent)

    assert int(settings("sshd_config")["Port"]) == int(settings_of_client()["Port"]) == launch.SSH_PORT
    assert settings("sshd_config")["AuthorizedKeysFile"] == str(lead.PUBLIC_KEY)
    assert settings_of_client()["IdentityFile"].startswith(keys)
    assert f"{Path(lead.SSH_CONFIG).parent}/" in dockerfile("triton-multinode")
