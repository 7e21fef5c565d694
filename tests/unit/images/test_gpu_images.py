"""Images with GPUs, as far as they can be checked without building them."""

import re
from pathlib import Path

import pytest

from slipway.cli.cluster.image_contract import PACKAGES_OF_STEPS, STEPS_OF_IMAGE
from slipway.tasks.engines.trtllm.commands import BUILD, PYTHON
from slipway.tasks.serving.pod import lead
from slipway.tasks.serving.rendered import commands
from tests.contracts.recorded import contract
from tests.support.paths import REPOSITORY

IMAGES = ("tasks-gpu", "tasks-modelopt", "triton-multinode")
LOCKS = ("tasks-gpu", "modelopt", "modelopt-gpu")


def dockerfile(name):
    return (REPOSITORY / "images" / name / "Dockerfile").read_text()


def settings(name):
    lines = (REPOSITORY / "images" / "triton-multinode" / name).read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip() and line[0] != "#" and " " in line.strip())


@pytest.mark.parametrize("name", IMAGES)
def test_every_file_that_an_image_copies_exists(name):
    for line in dockerfile(name).splitlines():
        if line.startswith("COPY"):
            sources = [word for word in line.split()[1:-1] if not word.startswith("--")]
            assert sources
            assert all((REPOSITORY / source).exists() for source in sources), line


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_ends_as_the_user_that_its_pods_run_as(name):
    users = re.findall(r"^USER (\S+)$", dockerfile(name), re.MULTILINE)

    assert users[-1] == "10001"


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_has_hashes(name):
    text = (REPOSITORY / "requirements" / f"{name}.lock").read_text()
    packages = re.findall(r"^[a-z0-9][^\s]*==[^\s]+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)

    assert len(packages) == len(re.findall(r"^[a-z0-9][^\s]*==", text, re.MULTILINE)) > 20


@pytest.mark.parametrize("name", ["tasks-gpu", "modelopt-gpu"])
def test_an_image_keeps_its_own_numpy_and_torch(name):
    lock = (REPOSITORY / "requirements" / f"{name}.lock").read_text()

    assert not re.search(r"^(numpy|scipy|torch|triton|nvidia-c[a-z0-9-]+)==", lock, re.MULTILINE)


def test_the_images_modelopt_is_the_laptops():
    """Tests run ModelOpt on CPU from one lock, GPU nodes from the other."""
    ours, images = (versions(name) for name in ("modelopt", "modelopt-gpu"))

    assert images.items() <= ours.items()
    assert set(ours) - set(images) == {"numpy", "scipy", "sympy", "mpmath", "networkx"}


def versions(name):
    text = (REPOSITORY / "requirements" / f"{name}.lock").read_text()
    return dict(re.findall(r"^([a-z0-9][^\s=]*)==(\S+)", text, re.MULTILINE))


def test_one_package_of_tensorrt_llms_image_is_replaced():
    assert versions("tensorrt-llm") == {"openai": contract("tensorrt_llm_openai.yaml")["repaired"]}
    assert "--repair /tmp/tensorrt-llm.lock" in dockerfile("tasks-gpu")


@pytest.mark.parametrize(("name", "argument"), [("tasks-gpu", "TRITON"), ("tasks-modelopt", "PYTORCH")])
def test_a_base_image_is_chosen_by_a_build_argument_which_may_hold_a_digest(name, argument):
    assert re.search(rf"^ARG {argument}=nvcr\.io/nvidia/\S+\nFROM \$\{{{argument}\}}$", dockerfile(name), re.MULTILINE)


@pytest.mark.parametrize("name", ["tasks-gpu", "tasks-modelopt"])
def test_the_build_of_an_image_imports_the_compiled_packages_that_its_steps_import_late(name):
    checked = re.search(r"--check (\S+)", dockerfile(name))[1].split(",")
    needed = {package for image in STEPS_OF_IMAGE if image.startswith(name) for package in PACKAGES_OF_STEPS[image]}

    assert {"blake3", "cryptography"} & needed <= {module.partition(".")[0] for module in checked}
    assert "cryptography" not in checked  # which imports nothing that is compiled


def test_modelopts_image_has_what_its_kernels_are_compiled_with():
    assert "--needs cc,c++,nvcc --keep ninja" in dockerfile("tasks-modelopt")


def test_tensorrt_llms_scripts_run_beside_the_steps_packages_and_not_among_them():
    """Only `python` is Slipway's: nothing that the image runs by another name sees its packages."""
    assert "ENV PATH=/opt/slipway/bin:${PATH}" in dockerfile("tasks-gpu")
    assert "--keep" not in dockerfile("tasks-gpu")
    assert "python" not in {PYTHON, BUILD}


def test_tools_that_only_train_or_draw_stay_out_of_modelopts_environment():
    lock = (REPOSITORY / "requirements" / "modelopt.lock").read_text()

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
    text = (REPOSITORY / "images" / "triton-multinode" / "ssh_config").read_text()
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_the_leader_talks_to_no_worker_that_it_does_not_know():
    client = settings_of_client()

    assert (client["StrictHostKeyChecking"], client["BatchMode"]) == ("yes", "yes")


def test_both_ends_of_a_connection_agree_with_what_is_rendered():
    keys = str(lead.PUBLIC_KEY.parent)

    assert int(settings("sshd_config")["Port"]) == int(settings_of_client()["Port"]) == commands.SSH_PORT
    assert settings("sshd_config")["AuthorizedKeysFile"] == str(lead.PUBLIC_KEY)
    assert settings_of_client()["IdentityFile"].startswith(keys)
    assert f"{Path(lead.SSH_CONFIG).parent}/" in dockerfile("triton-multinode")
