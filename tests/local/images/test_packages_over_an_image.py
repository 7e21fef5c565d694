"""Slipway's packages over the two layouts of NVIDIA's images, rebuilt from virtual environments, by the images' own script.

In the -trtllm layout a vendor's environment is first on PATH and the Python it was made from has none of its packages; in
the -vllm layout there is only one Python. torch, TensorRT-LLM and their like are stand-ins under the names and versions of
26.07; what Slipway brings along is real, repacked from this checkout's environments so that nothing is downloaded.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.cli.cluster.image_contract import PACKAGES_OF_SERVERS, PACKAGES_OF_STEPS, STEPS_OF_IMAGE, import_command
from tests.contracts.recorded import contract
from tests.local.images.wheels import names_of, normalized, repacked, stand_in
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.uv import uv

OWN = [ENVIRONMENTS / name for name in ("tasks", "triton", "local")]
OPENAI = contract("tensorrt_llm_openai.yaml")


def openai_of(names):
    """Modules of an openai that has these names."""
    files = {"openai/__init__.py": ""}
    for module in OPENAI["imports"]:
        path = Path(*module.split("."))
        for parent in path.parents[:-1]:
            files.setdefault(str(parent / "__init__.py"), "")
    for module, imported in OPENAI["imports"].items():
        path = str(Path(*module.split(".")))
        file = f"{path}/__init__.py" if f"{path}/__init__.py" in files else f"{path}.py"
        files[file] = files.get(file, "") + "".join(f"class {name}: pass\n" for name in imported if name in names)
    return files


ALL_NAMES = {name for names in OPENAI["imports"].values() for name in names}
LLM_API = "".join(f"from {module} import {', '.join(names)}\n" for module, names in OPENAI["imports"].items())
TENSORRT_LLM = {
    "tensorrt_llm/__init__.py": "",
    "tensorrt_llm/llmapi/__init__.py": "import tensorrt_llm.serve.responses_utils\n",
    "tensorrt_llm/serve/__init__.py": "",
    "tensorrt_llm/serve/responses_utils.py": LLM_API,
    "tensorrt_llm/commands/__init__.py": "",
    "tensorrt_llm/commands/build.py": "",
    "tensorrt_llm/executor/__init__.py": "",
    "tensorrt_llm/executor/request.py": "",
    "tensorrt_llm/lora_manager.py": "",
    "tensorrt_llm/quantization/__init__.py": "import torch, transformers, modelopt\n",
}
VLLM = {
    f"vllm/{path}": ""
    for path in (
        "__init__.py",
        "engine/__init__.py",
        "engine/arg_utils.py",
        "lora/__init__.py",
        "lora/request.py",
        "sampling_params.py",
    )
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Folders of wheels, each with locks of what is in it: `own` is what Slipway brings along, the others are images'."""
    own, trtllm, vllm = (tmp_path_factory.mktemp(name) for name in ("own", "trtllm", "vllm"))
    names = [name for name in names_of(REPOSITORY / "requirements" / "tasks-gpu.lock") if available(name)]
    (own / "own.lock").write_text(repacked(names, OWN, own))
    (own / "repair.lock").write_text(stand_in("openai", OPENAI["repaired"], own, openai_of(ALL_NAMES)))
    (trtllm / "all.lock").write_text(
        packages_of_both(trtllm)
        + stand_in("tensorrt-llm", "1.2.1", trtllm, TENSORRT_LLM)
        + stand_in("nvidia-modelopt", "0.37.0", trtllm, {"modelopt/__init__.py": ""})
        + stand_in("openai", OPENAI["bundled"], trtllm, openai_of(ALL_NAMES - set(OPENAI["missing"])))
    )
    (vllm / "all.lock").write_text(packages_of_both(vllm) + stand_in("vllm", "0.24.0+092c4842", vllm, VLLM))
    return {"own": own, "trtllm": trtllm, "vllm": vllm}


def packages_of_both(folder):
    torch = {"torch/__init__.py": "", "torch/cuda/__init__.py": ""}
    real = ["numpy", "safetensors", "tokenizers", "jinja2", "markupsafe", "pyyaml"]
    return (
        stand_in("torch", "2.10.0a0+b4e4ee81d3.nv25.12", folder, torch)
        + stand_in("transformers", "4.57.3", folder)
        + repacked(real, [ENVIRONMENTS / "triton", ENVIRONMENTS / "tasks"], folder)
    )


def available(name):
    return any(
        normalized(path.name.partition("-")[0]) == normalized(name)
        for environment in OWN
        for path in (next((environment / "lib").glob("python3.*")) / "site-packages").glob("*.dist-info")
    )


class Image:
    """A root folder whose first python3 on PATH has the vendor's packages."""

    def __init__(self, folder, wheels, flavour):
        self.folder, self.wheels, self.flavour = folder, wheels, flavour
        self.vendor = folder / "opt" / "venv-tritonserver"
        uv("venv", "--quiet", "--seed", "--python", sys.executable, self.vendor)
        self.path = f"{self.vendor / 'bin'}:{os.environ['PATH']}"
        self.run(
            f"python3 -m pip install -q --no-deps -r {wheels[flavour] / 'all.lock'}",
            PIP_FIND_LINKS=str(wheels[flavour]),
        )
        self.own = folder / "opt" / "slipway"

    def run(self, command, check=True, **environment):
        values = {
            "PATH": self.path,
            "HOME": str(self.folder),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",
        }
        values |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels["own"]), "PYTHONPATH": "", **environment}
        done = subprocess.run(
            ["bash", "-c", command], env=values, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def build(self, name="tasks-gpu", **environment):
        """Run what the Dockerfile runs, with this image's root, wheels and locks; `python` is Slipway's from then on."""
        self.run(lay_over_of(name, self), **environment)
        self.path = f"{self.own / 'bin'}:{self.path}"

    def versions(self):
        listed = self.run("python3 -m pip list --format json").stdout
        return {each["name"]: each["version"] for each in json.loads(listed)}


def lay_over_of(name, image):
    """The script's line of a Dockerfile, word for word but for the places of files."""
    text = (REPOSITORY / "images" / name / "Dockerfile").read_text().replace("\\\n", " ")
    words = shlex.split(re.search(r"python3 /tmp/lay_over\.py (.*?)(?:&&|$)", text, re.MULTILINE)[1])
    places = {
        "/tmp/tasks-gpu.lock": image.wheels["own"] / "own.lock",
        "/tmp/tensorrt-llm.lock": image.wheels["own"] / "repair.lock",
        "/opt/slipway": image.own,
    }
    script = REPOSITORY / "images" / "layer" / "lay_over.py"
    return shlex.join(["python3", str(script), *(str(places.get(word, word)) for word in words)])


@pytest.fixture(scope="module", params=["trtllm", "vllm"])
def flavour(request):
    return request.param


@pytest.fixture(scope="module")
def image(flavour, wheels, tmp_path_factory):
    """An image of the flavour after it was built, which remembers what it was before."""
    image = Image(tmp_path_factory.mktemp(flavour), wheels, flavour)
    image.before = image.versions()
    image.unrepaired = image.run(import_command("python3", ["tensorrt_llm.llmapi"]), check=False)
    constraint = image.folder / "constraint.txt"
    constraint.write_text("boto3==1.0.0\n")
    image.build(PIP_CONSTRAINT=str(constraint))
    return image


def test_each_step_imports_what_it_needs_by_the_interpreter_that_runs_it(image):
    built = f"tasks-gpu-{image.flavour}"

    image.run(import_command("python", [*STEPS_OF_IMAGE[built], *PACKAGES_OF_STEPS[built]]))


def test_servers_and_tools_import_what_they_need_by_the_images_own_interpreter(image):
    image.run(import_command("python3", PACKAGES_OF_SERVERS[f"tasks-gpu-{image.flavour}"]))


def test_the_images_interpreter_sees_none_of_slipways_packages(image):
    assert image.run("python3 -c 'import boto3'", check=False).returncode == 1
    assert image.run("command -v python3").stdout.strip() == str(image.vendor / "bin" / "python3")
    assert sorted(file.name for file in (image.own / "bin").iterdir()) == ["python"]


def test_the_image_keeps_its_versions_but_for_what_is_repaired(image):
    changed = {name for name, version in image.versions().items() if image.before.get(name) != version}

    assert changed == ({"openai"} if image.flavour == "trtllm" else set())
    assert set(image.versions()) == set(image.before)


def test_slipways_own_version_of_a_package_comes_before_the_images(image):
    words = "import yaml, sys; print(yaml.__file__.startswith(sys.prefix))"

    assert image.run(f"python -c '{words}'").stdout.strip() == "True"


def test_before_it_is_repaired_an_image_cannot_import_the_llm_api(image):
    if image.flavour == "trtllm":
        assert "cannot import name 'PartReasoningText'" in image.unrepaired.stderr
    else:
        assert "No module named 'tensorrt_llm'" in image.unrepaired.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--check torchaudio", "`import torchaudio` fails in"),
        ("--needs nvcc-of-no-image", "the image lacks nvcc-of-no-image"),
    ],
)
def test_an_image_of_another_layout_fails_when_it_is_built(image, tmp_path, options, words):
    lock = tmp_path / "empty.lock"
    lock.write_text("")

    refused = image.run(f"python3 images/layer/lay_over.py --lock {lock} --to {tmp_path}/over {options}", check=False)

    assert (refused.returncode, words in refused.stderr) == (1, True)
