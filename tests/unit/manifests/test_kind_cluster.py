"""`make kind`, as far as it can be checked without Docker: its files, and its commands over stand-ins for the tools."""

import os
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site
from tests.contracts.recorded import contract
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_all_yaml, load_yaml

KIND = REPOSITORY / "local" / "kind"
RECORD = contract("kind_cluster.yaml")
TOOLS = ("docker", "kind", "kubectl", "helm", "openssl", "curl")
STAND_IN = REPOSITORY / "tests" / "fakes" / "kind_tools.sh"
SHELL = shutil.which("bash")
DIGEST = f"@sha256:{'7'.zfill(64)}"
RESOURCES = ("namespaces.yaml", "object-store.yaml", "hub.yaml", "postgres.yaml")


class Call:
    """One call of a program: its words, its KUBECONFIG, and what it read."""

    def __init__(self, kubeconfig, given, *words):
        self.kubeconfig, self.input, self.words = kubeconfig, given, list(words)


def documents(name):
    return [item for item in load_all_yaml((KIND / name).read_text()) if item]


def objects():
    return [item for name in RESOURCES for item in documents(name)]


def commands_on(folder, *names):
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(STAND_IN)
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with stand-ins for every program, and what `make kind` reads."""
    made = tmp_path_factory.mktemp("kind") / "checkout"
    shutil.copytree(KIND, made / "local" / "kind")
    shutil.copytree(REPOSITORY / "k8s_manifests", made / "k8s_manifests")
    python = made / ".slipway" / "envs" / "local" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    commands_on(made / "tools", *TOOLS, "python3")
    (made / "bin").mkdir()
    (made / "bin" / "slipway").symlink_to(STAND_IN)
    return made


def run(script, folder, path, **variables):
    environment = {"PATH": str(path), "HOME": str(folder), **variables}
    command = [SHELL, f"local/kind/{script}"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def calls(checkout):
    """Every call that a whole `make kind` makes, in order."""
    log = checkout / "calls"
    path = os.pathsep.join([str(checkout / "tools"), os.environ["PATH"]])
    code, said, errors = run("up.sh", checkout, path, LOG=str(log))
    assert code == 0, said + errors
    return [Call(*record.split("\x1f")[:-1]) for record in log.read_text().split("\x1e")[:-1]]


def test_every_object_follows_the_schema_of_kubernetes():
    for item in objects():
        validate(item)


def test_the_kustomization_lists_every_file_of_objects():
    listed = load_yaml((KIND / "kustomization.yaml").read_text())

    assert listed["resources"] == ["../../k8s_manifests/overlays/kind", *RESOURCES]
    assert all((KIND / name).exists() for name in listed["resources"] + listed["components"])


def test_the_cluster_s_configuration_has_fields_of_kind():
    record, (config,) = RECORD["config"], documents("cluster.yaml")

    assert config.keys() <= set(record["Cluster"])
    (node,) = config["nodes"]
    assert node.keys() <= set(record["Node"])
    assert (node["role"] in record["roles"], node["image"]) == (True, record["image"])
    assert all(mount.keys() <= set(record["Mount"]) for mount in node["extraMounts"])


@pytest.mark.parametrize("file", ["k8s_manifests/airflow/values.yaml", "local/kind/airflow.values.yaml"])
def test_the_values_follow_the_schema_of_airflows_chart(file):
    record = contract("airflow_chart.json")
    values = load_yaml((REPOSITORY / file).read_text())

    jsonschema.validate(values, record["schema"])

    assert f"chart {record['version']}" in (REPOSITORY / file).read_text()
    assert values.keys() <= record["schema"]["properties"].keys()


def test_the_common_settings_follow_the_schema_of_airflows_chart():
    jsonschema.validate(
        load_yaml((REPOSITORY / "k8s_manifests/airflow/settings.yaml").read_text()),
        contract("airflow_chart.json")["schema"],
    )


@pytest.mark.parametrize(
    "wrong", [{"volumez": []}, {"triggerer": {"replicas": "2"}}, {"images": {"airflow": {"tagg": "dev"}}}]
)
def test_a_value_that_the_chart_lacks_is_noticed(wrong):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, contract("airflow_chart.json")["schema"])


def test_the_images_of_kind_are_those_of_compose():
    compose = load_yaml((REPOSITORY / "docker-compose.yaml").read_text())["services"]
    containers = [
        container
        for item in objects()
        if item["kind"] in {"Deployment", "Job"}
        for container in item["spec"]["template"]["spec"]["containers"]
    ]

    images = {container["image"] for container in containers} - {"tasks-cpu"}
    assert images == {compose[name]["image"] for name in ("object-store", "bucket", "postgres")}


def test_every_secret_that_an_object_or_airflow_reads_is_made(calls):
    made = {
        (words[words.index("-n") + 1], words[words.index("generic") + 1])
        for words in (call.words for call in calls)
        if "generic" in words
    }
    text = "".join((KIND / name).read_text() for name in RESOURCES)
    read = {("slipway-store", name) for name in re.findall(r"secret(?:Key)?Ref: {name: ([a-z0-9-]+)", text)}
    values = load_yaml((KIND / "airflow.values.yaml").read_text())
    read |= {("airflow", each["secretName"]) for each in values["secret"]}
    read |= {
        ("airflow", volume["secret"]["secretName"])
        for volume in values["apiServer"]["extraVolumes"]
        if "secret" in volume
    }
    read |= {("airflow", value) for name, value in values.items() if name.endswith("SecretName")}
    read |= {("airflow", values["data"]["metadataSecretName"])}

    assert read <= made


def test_the_site_names_the_images_that_were_pushed_and_reaches_what_the_cluster_runs(calls, checkout):
    file = checkout / ".slipway" / "kind" / "site.yaml"
    site = read_contract(Site, load_yaml(file.read_text()), "site.yaml")
    services = {
        f"http://{item['metadata']['name']}.{item['metadata']['namespace']}.svc:{item['spec']['ports'][0]['port']}"
        for item in objects()
        if item["kind"] == "Service"
    }

    assert site.images.tasks == f"localhost:5001/slipway/tasks-cpu{DIGEST}"
    assert site.images.serving["openvino"] == f"localhost:5001/slipway/triton-cpu{DIGEST}"
    assert {site.object_store.endpoint, site.hub.endpoint} <= services


def test_the_commands_come_in_an_order_in_which_each_finds_what_it_needs(calls):
    said = [" ".join(call.words) for call in calls]
    order = [
        "docker run --detach",
        "kind create cluster",
        "docker exec -i slipway-control-plane cp",
        "docker network connect kind slipway-registry",
        "docker buildx bake",
        "docker push --quiet localhost:5001/slipway/airflow:dev",
        "kubectl apply --filename local/kind/namespaces.yaml",
        "kubectl -n slipway-store create secret",
        "kubectl apply --kustomize local/kind",
        "kubectl -n slipway-store wait",
        "slipway --site",
        "helm upgrade --install airflow",
        "kubectl -n airflow rollout status statefulset.apps/airflow-scheduler",
        "kubectl -n airflow exec",
        "slipway release demo-llama",
        "slipway ask demo-llama",
    ]
    found = [next(number for number, text in enumerate(said) if text.startswith(each)) for each in order]
    assert found == sorted(found)


def test_the_configuration_of_the_cluster_mounts_the_checkout(calls, checkout):
    (given,) = [call.input for call in calls if call.words[:3] == ["kind", "create", "cluster"]]

    (mount,) = load_yaml(given)["nodes"][0]["extraMounts"]
    assert mount["hostPath"] == str(checkout)


def test_no_command_touches_another_cluster(calls, checkout):
    own = str(checkout / ".slipway" / "kind" / "kubeconfig")

    assert {call.kubeconfig for call in calls if call.words[0] in {"kubectl", "helm", "kind"}} == {own}


def test_every_flag_is_one_that_its_tool_has(calls):
    for words in (call.words for call in calls):
        program, *rest = words
        if program not in RECORD["commands"]:
            continue
        # what follows is a command in a container
        end = next((number for number, word in enumerate(rest) if word in {"--", "slipway-control-plane"}), len(rest))
        flags = {word.partition("=")[0] for word in rest[:end] if word.startswith("-") and word != "-"}
        plain = re.sub(r" -n \S+", "", f" {' '.join(rest)}").strip()
        record = RECORD["commands"][program]
        names = [name for name in record if plain.startswith(name)]
        assert names, f"{program} {plain}"
        assert flags <= set(record[names[0]]), f"{program} {plain}"


@pytest.mark.parametrize(
    ("script", "there", "named"),
    [
        ("up.sh", (), "docker kind kubectl helm openssl curl"),
        ("up.sh", ("docker", "kubectl", "openssl", "curl"), "kind helm"),
        ("down.sh", ("docker",), "kind"),
    ],
)
def test_what_is_missing_is_refused_in_one_line(checkout, tmp_path, script, there, named):
    code, said, errors = run(script, checkout, commands_on(tmp_path / "path", *there), LOG=str(tmp_path / "calls"))

    assert (code, said, len(errors.splitlines())) == (78, "", 1)
    assert f": {named} not found on PATH." in errors
    assert not (tmp_path / "calls").exists()
