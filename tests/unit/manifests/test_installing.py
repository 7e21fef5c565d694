"""What docs/install.md installs: Airflow's chart, its rights, and Secrets from a store."""

import re
from pathlib import Path

from slipway.tasks.contracts.site.store_access import IDENTITY_VARIABLE
from tests.contracts.recorded import check_object, contract
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml
from tests.unit.manifests.objects import MANIFESTS, base_objects, listed

PAGE = (REPOSITORY / "docs" / "install.md").read_text()
VALUES = load_yaml((MANIFESTS / "airflow" / "values.yaml").read_text())
SETTINGS = load_yaml((MANIFESTS / "airflow" / "settings.yaml").read_text())


def test_airflow_of_the_chart_runs_the_locked_version_and_finds_what_slipway_needs():
    lock = (REPOSITORY / "requirements" / "airflow.lock").read_text()
    environment = {each["name"]: each["value"] for each in VALUES["env"]}
    mounted = {each["mountPath"] for each in VALUES["volumeMounts"]}

    assert f"apache-airflow=={VALUES['airflowVersion']} " in lock
    assert str(Path(environment["SLIPWAY_SITE"]).parent) in mounted
    assert environment["SLIPWAY_SPECS"].startswith(f"{VALUES['airflowHome']}/dags/repo/")
    assert environment[IDENTITY_VARIABLE] == "slipway-airflow"
    assert SETTINGS["config"]["core"]["dags_are_paused_at_creation"] == "False"  # the first release would be refused


def test_every_command_for_the_chart_gives_it_the_common_settings_first():
    commands = [
        (REPOSITORY / file)
        .read_text()
        .replace("\\\n", " ")
        .split("helm upgrade --install airflow", 1)[1]
        .split("\n", 1)[0]
        for file in ("docs/install.md", "local/kind/up.sh")
    ]

    files = [[Path(each).name for each in re.findall(r"--values (\S+)", command)] for command in commands]
    assert files == [["settings.yaml", "values.yaml"], ["settings.yaml", "airflow.values.yaml"]]


def test_whatever_runs_tasks_or_triggers_of_the_chart_has_the_rights_of_slipway_airflow():
    roles = {
        (item["metadata"]["namespace"], item["metadata"]["name"]) for item in base_objects() if item["kind"] == "Role"
    }
    for file in listed(MANIFESTS / "airflow"):
        binding = load_yaml(file.read_text())
        validate(binding)
        assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) in roles
        assert {each["name"] for each in binding["subjects"]} == {
            "airflow-scheduler",
            "airflow-triggerer",
            "airflow-worker",
        }
        assert {each["namespace"] for each in binding["subjects"]} == {"airflow"}


def test_external_secrets_follow_their_crd_and_make_the_secret_that_specs_name():
    recorded = contract("external_secret.json")
    (file,) = listed(MANIFESTS / "external-secrets")
    secret = load_yaml(file.read_text())

    assert secret["apiVersion"] == f"{recorded['group']}/{recorded['served']}"
    check_object(secret, recorded["openAPIV3Schema"])
    made = {f"{secret['spec']['target']['name']}/{each['secretKey']}" for each in secret["spec"]["data"]}
    named = {
        (load_yaml(path.read_text())["source"] or {}).get("token_secret")
        for path in (REPOSITORY / "specs").glob("*.yaml")
    }
    assert named - {None} <= made


def test_the_page_names_components_secrets_and_accounts_that_exist():
    for component in re.findall(r"- \.\./\.\./([a-z-]+)", PAGE):
        assert (MANIFESTS / component / "kustomization.yaml").exists(), component
    made = set(re.findall(r"create secret generic ([a-z-]+)", PAGE))
    used = {VALUES[name] for name in VALUES if name.endswith("SecretName")} | {VALUES["data"]["metadataSecretName"]}
    used |= {each["secret"]["secretName"] for each in VALUES["volumes"] if "secret" in each}
    assert used <= made


def test_every_process_of_airflow_that_reads_the_store_has_a_role_that_trusts_its_account():
    """Tasks run in the scheduler; the API server's pages read documents (docs/your-airflow.md)."""
    for process, account in (("scheduler", "airflow-scheduler"), ("apiServer", "airflow-api-server")):
        (arn,) = VALUES[process]["serviceAccount"]["annotations"].values()
        trusting = rf"namespace[= ]airflow (--)?name[= ]{account}\b"
        assert re.search(trusting, PAGE), account
        role = arn.rpartition("/")[2]
        assert role == "slipway-airflow" or f"--role-name {role} " in PAGE
