"""docker-bake.hcl against the Dockerfiles that it builds."""

import re

import pytest

from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

BAKE = (REPOSITORY / "docker-bake.hcl").read_text()
TARGETS = {
    name: body for name, body in re.findall(r'target "([a-z-]+)" \{\n(.*?)\n\}', BAKE, re.DOTALL) if name[0] != "_"
}
VARIABLES = dict(re.findall(r'variable "(\w+)" \{ default = "(.*)" \}', BAKE))


def value(body, attribute):
    return re.search(rf'{attribute} += "(.*)"', body)[1]


def test_every_dockerfile_is_built_by_a_target():
    built = {REPOSITORY / value(body, "dockerfile") for body in TARGETS.values()}

    assert built == set((REPOSITORY / "images").glob("*/Dockerfile"))


def test_every_target_is_in_a_group():
    groups = re.findall(r'group "\w+" \{ targets = \[(.*)\] \}', BAKE)

    assert {name for group in groups for name in re.findall(r'"([a-z-]+)"', group)} >= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_attaches_attestations_and_sets_arguments_that_its_dockerfile_has(name):
    body = TARGETS[name]
    declared = re.findall(r"^ARG (\w+)", (REPOSITORY / value(body, "dockerfile")).read_text(), re.MULTILINE)

    assert 'inherits   = ["_image"]' in body
    assert set(re.findall(r"(\w+) = ", re.search(r"args += \{(.*)\}", body)[1])) <= set(declared)
    assert 'attest    = ["type=sbom", "type=provenance,mode=max"]' in BAKE


def test_the_python_base_is_one_digest_in_every_dockerfile_and_in_the_bake_file():
    digest = re.compile(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}")
    files = [
        path.read_text() for path in (REPOSITORY / "images").glob("*/Dockerfile") if "ARG PYTHON=" in path.read_text()
    ]

    assert files
    assert {found for text in files for found in digest.findall(text)} == {VARIABLES["PYTHON"]}
    assert digest.fullmatch(VARIABLES["PYTHON"])


def test_tags_of_gpu_images_end_in_release_and_flavour():
    for name in ("tasks-gpu-trtllm", "tasks-gpu-vllm", "triton-multinode"):
        flavour = "vllm" if name.endswith("vllm") else "trtllm"
        assert f"${{VERSION}}-${{TRITON_RELEASE}}-{flavour}" in TARGETS[name]


def in_group(name):
    """The targets of a group, and of the groups in it."""
    if name in TARGETS:
        return {name}
    (members,) = re.findall(rf'group "{name}" {{ targets = \[(.*)\] }}', BAKE)
    return {target for member in re.findall(r'"([a-z-]+)"', members) for target in in_group(member)}


def repository(reference):
    """The repository of an image, without its registry, tag and digest."""
    return re.sub(r"(:[^/]*)?(@.*)?$", "", reference).partition("/")[2]


def test_the_registry_of_the_installation_has_a_repository_for_every_image_that_is_pushed_or_named():
    page = (REPOSITORY / "docs/install.md").read_text()
    ours, others = re.search(r"for name in slipway/\{([a-z,-]+)\} (.*); do", page).groups()
    site = load_yaml((REPOSITORY / "sites/eks.yaml").read_text())["images"]

    pushed = {repository(re.search(r'tags += \["(.*)"\]', TARGETS[name])[1]) for name in in_group("all")}
    named = {repository(image) for image in (*site.pop("serving").values(), *site.values())}
    made = {f"slipway/{name}" for name in ours.split(",")} | set(others.split())
    assert {f"slipway/{name}" for name in pushed} == made - set(others.split())
    assert named <= made
    assert re.search(r"imagetools create --tag \$\{REGISTRY%/\*\}/(\S+) ", page)[1] in site["front"]
