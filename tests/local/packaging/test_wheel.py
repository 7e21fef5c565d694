"""The wheel is a working `slipway` command where there is no checkout and nothing of the project's environments."""

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import PurePosixPath

import pytest
import yaml

from slipway.cli.__main__ import COMMANDS
from slipway.tasks.contracts.stored.channel import Channel
from tests.fakes.releases import release
from tests.fakes.servers.airflow_server import Frame, Script
from tests.fakes.servers.triton_http import TritonHttpServer
from tests.local.packaging.stored_objects import StoredObjects
from tests.support.paths import REPOSITORY
from tests.unit.cli.runs import DAG, nothing_to_do, planned, promoted, result

PARIS = [{"text_output": "Par"}, {"text_output": "is."}, {"text_output": "", "finish_reason": "stop"}]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.fixture
def site(empty):
    """A site file in the working folder, with the object store at `endpoint`."""

    def write(endpoint):
        document = yaml.safe_load((REPOSITORY / "sites/local.yaml").read_text())
        document["object_store"]["endpoint"] = endpoint
        (empty / "site.yaml").write_text(yaml.safe_dump(document))
        return empty / "site.yaml"

    return write


def test_site_packages_gets_one_package_and_no_name_of_another_project(wheel):
    with zipfile.ZipFile(wheel) as archive:
        top_level = {PurePosixPath(name).parts[0] for name in archive.namelist()}

    assert top_level == {"slipway", "slipway_models-0.1.0.dist-info"}


def test_the_licence_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("slipway_models-0.1.0.dist-info/METADATA").decode()
        licence = archive.read("slipway_models-0.1.0.dist-info/licenses/LICENSE")

    assert "License-Expression: Apache-2.0" in metadata
    assert licence == (REPOSITORY / "LICENSE").read_bytes()


def test_every_module_of_the_command_finds_its_imports(wheel, bare, empty):
    with zipfile.ZipFile(wheel) as archive:
        sources = {
            name.removesuffix(".py").replace("/", "."): archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("slipway/cli/")
        }
    modules = {name for name in sources if "__" not in name}
    # those that a command imports only when it runs as well
    modules |= {
        name for source in sources.values() for name in re.findall(r"from (slipway\.tasks\.[\w.]+) import", source)
    }
    program = f"import importlib; [importlib.import_module(name) for name in {sorted(modules)}]"

    done = subprocess.run([bare, "-I", "-c", program], cwd=empty, capture_output=True, text=True, check=False)

    assert modules > set(COMMANDS.values())
    assert done.returncode == 0, done.stderr


def test_the_help_calls_the_command_slipway(slipway, bare, empty):
    as_module = subprocess.run([bare, "-m", "slipway", "--help"], cwd=empty, capture_output=True, text=True, check=True)

    assert "Usage: slipway [OPTIONS] COMMAND" in slipway("--help").stdout
    assert "Usage: slipway [OPTIONS] COMMAND" in as_module.stdout


def test_validate_accepts_a_spec_and_refuses_a_broken_one(slipway, empty):
    good, broken = empty / "good.yaml", empty / "broken.yaml"
    shutil.copy(REPOSITORY / "specs/demo.yaml", good)
    broken.write_text(good.read_text().replace("format: int8", "format: int9"))

    accepted, refused = slipway("validate", good), slipway("validate", broken)

    assert accepted.returncode == 0, accepted.stderr
    assert refused.returncode == 65
    assert "quantization.format" in refused.stdout + refused.stderr


@pytest.mark.parametrize("options", [[], ["--site"]])
def test_schema_prints_a_json_schema(slipway, options):
    assert "properties" in json.loads(slipway("schema", *options).stdout)


def test_migrate_prints_a_spec_that_validate_accepts(slipway, empty):
    migrated = slipway("migrate", REPOSITORY / "specs/llama-3-8b-awq-l4.yaml")
    (empty / "migrated.yaml").write_text(migrated.stdout)

    assert migrated.returncode == 0, migrated.stderr
    assert slipway("validate", "migrated.yaml").returncode == 0


def test_plan_and_release_follow_a_run_in_airflow(slipway, airflow, login):
    airflow.dags[DAG] = Script([Frame("running", {"plan": "success", "download": None})], {"plan": planned()})
    plan = slipway("plan", "demo", **login)
    airflow.dags[DAG] = promoted()
    released = slipway("release", "demo", "--revision", "v1", **login)

    assert plan.returncode == 0, plan.stderr
    assert "runs build, assemble, publish" in plan.stdout
    assert released.returncode == 0, released.stderr
    assert "promoted: demo-555555555555 is live" in released.stdout


def test_rollback_starts_its_own_run(slipway, airflow, login):
    back = {"revert": result("revert", "demo-older is live again")}
    airflow.dags["rollback__demo"] = Script([Frame("success", {"revert": "success"})], back)

    done = slipway("rollback", "demo", "--reason", "wrong answers", **login)

    assert done.returncode == 0, done.stderr
    assert "demo-older is live again" in done.stdout


@pytest.fixture
def stored():
    """An object store in which a release of `demo` is live."""
    live = release()
    uri = f"s3://slipway/releases/demo/{live.id}/release.json"
    channel = Channel(name="demo").promoted(live.id, uri, at=live.created_at, run="run-1", keep=2)
    documents = {
        "slipway/channels/demo.json": channel.model_dump_json().encode(),
        f"slipway/releases/demo/{live.id}/release.json": live.model_dump_json().encode(),
    }
    with StoredObjects(documents) as store:
        yield store


def test_status_shows_what_it_reaches_and_names_what_it_does_not(slipway, airflow, login, site, stored):
    airflow.dags[DAG] = nothing_to_do()

    done = slipway("--site", site(stored.endpoint), "status", "demo", **login, **CREDENTIALS)

    shown = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert release().id in shown["live"]
    assert "unknown" in shown["service"]
    assert f"GET /api/v2/dags/{DAG}/dagRuns" in airflow.asked
    assert done.returncode in {65, 75}


def test_explain_reads_the_object_store(slipway, site, stored):
    explained = slipway("--site", site(stored.endpoint), "explain", "demo", **CREDENTIALS)
    never_released = slipway("--site", site(stored.endpoint), "explain", "other", **CREDENTIALS)

    assert explained.returncode == 0, explained.stderr
    assert release().id in explained.stdout
    assert never_released.returncode == 65
    assert "slipway/channels/other.json" in never_released.stderr


def test_ask_streams_an_answer(slipway):
    with TritonHttpServer(answers=PARIS) as triton:
        done = slipway("ask", "demo", "What is the capital of France?", "--host", f"127.0.0.1:{triton.port}")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Paris.\n")


def test_setup_renders_the_objects_of_a_site(slipway, site):
    done = slipway("--site", site("http://192.168.7.9:7480"), "setup", "--render")

    assert done.returncode == 0, done.stderr
    assert "ConfigMap" in {document["kind"] for document in yaml.safe_load_all(done.stdout)}


@pytest.mark.parametrize("arguments", [("release", "demo"), ("explain", "demo"), ("ask", "demo", "Who?")])
def test_a_command_without_settings_says_what_it_needs(slipway, arguments):
    done = slipway(*arguments)

    assert done.returncode == 65
    assert "SLIPWAY_" in done.stderr
    assert "Traceback" not in done.stderr
