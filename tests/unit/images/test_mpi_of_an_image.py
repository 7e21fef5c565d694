"""What images/triton-multinode checks of the image it is built from, and the environment that orted gets."""

import shlex
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

SCRIPT = REPOSITORY / "images" / "triton-multinode" / "image_mpi.py"
VERSION = "mpirun (Open MPI) 4.1.7a1"


@pytest.fixture
def image(tmp_path):
    """Run the script in an image with HPC-X: mpirun behind a link, OPAL_PREFIX, and EFA's libraries."""
    bin_folder = tmp_path / "hpcx" / "bin"
    bin_folder.mkdir(parents=True)
    (tmp_path / "mpi").symlink_to(tmp_path / "hpcx")
    for folder, library in (("efa", "libfabric.so.1"), ("aws-ofi-nccl", "libnccl-net-ofi.so")):
        (tmp_path / "amazon" / folder / "lib").mkdir(parents=True)
        (tmp_path / "amazon" / folder / "lib" / library).touch()

    def install(name, script):
        (bin_folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (bin_folder / name).chmod(0o755)

    install("mpirun", f"echo '{VERSION}'")
    install("orted", "")

    def run(*arguments, **environment):
        known = {"PATH": f"{tmp_path}/mpi/bin:/bin", "OPAL_PREFIX": f"{tmp_path}/hpcx", **environment}
        command = [sys.executable, SCRIPT, "--amazon", tmp_path / "amazon", *arguments]
        return subprocess.run(command, env=known, capture_output=True, text=True, check=False)

    run.install, run.folder = install, tmp_path
    return run


def test_orted_is_given_the_images_environment_and_no_secret(image):
    file = image.folder / "sshd_environment"

    done = image("--write", file, LD_LIBRARY_PATH="/a:/b", OMPI_MCA_btl="tcp,self", AWS_SECRET_ACCESS_KEY="no")

    assert done.returncode == 0, done.stderr
    directive, *pairs = shlex.split(file.read_text(), comments=True)
    assert directive == "SetEnv"
    assert dict(pair.split("=", 1) for pair in pairs) == {
        "LD_LIBRARY_PATH": "/a:/b",
        "OMPI_MCA_btl": "tcp,self",
        "OPAL_PREFIX": f"{image.folder}/hpcx",
        "PATH": f"{image.folder}/mpi/bin:/bin",
    }


def test_a_worker_reads_the_directive():
    text = (SCRIPT.parent / "sshd_config").read_text()
    dockerfile = (SCRIPT.parent / "Dockerfile").read_text()

    assert "\nInclude /etc/slipway-mpi/sshd_environment\n" in text
    assert "image_mpi.py --write /etc/slipway-mpi/sshd_environment" in dockerfile


def test_another_series_of_open_mpi_is_refused(image):
    image.install("mpirun", "echo 'mpirun (Open MPI) 5.0.10'")

    refused = image()

    assert (refused.returncode, "expected Open MPI 4.1" in refused.stderr) == (1, True)


def test_an_image_without_a_launcher_is_refused(image):
    (image.folder / "hpcx" / "bin" / "orted").unlink()

    assert "mpi/bin/orted is missing" in image().stderr


@pytest.mark.parametrize(("plugin", "code"), [("ofi", 1), ("none", 0)])
def test_efa_needs_the_plugin_that_the_image_brings_along(image, plugin, code):
    (image.folder / "amazon" / "aws-ofi-nccl" / "lib" / "libnccl-net-ofi.so").unlink()

    done = image(NCCL_NET_PLUGIN=plugin)

    assert done.returncode == code
    assert ("NCCL plugin: none of libnccl-net-ofi.so" in done.stderr) == bool(code)


def test_an_image_with_efa_names_its_libraries(image):
    done = image(NCCL_NET_PLUGIN="ofi")

    assert done.returncode == 0, done.stderr
    assert "aws-ofi-nccl/lib/libnccl-net-ofi.so" in done.stdout
