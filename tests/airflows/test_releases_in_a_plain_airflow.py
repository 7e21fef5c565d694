"""Releases through an Airflow that has the wheel and nothing else of the project, and everyone who is told of them.

Cluster, object store and Hub are the laptop's stack. What is typed and seen is written to .slipway/transcripts.
"""

import contextlib
import json
import os
import re
import shutil
import time

import httpx
import pytest
import yaml

from tests.airflows.environments import NOTIFIERS, OLDER, PINNED, with_extra
from tests.airflows.plain_services import USER, PlainAirflow
from tests.airflows.served import STARTS_S
from tests.airflows.told_services import Mail, Mlflow
from tests.airflows.transcript import Transcript
from tests.fakes.servers.inboxes import WebhookInbox
from tests.local.chain.own_stack import FOLDER, SPECS, own_chain
from tests.local.chain.whole_chain import MODEL, SPEC, made_light
from tests.local.packaging.plain_airflow import DAG_FILE
from tests.local.serving.openai_server import KeptClient
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.timeout(3600)
AFTER = "after_a_promotion"
AFTER_FILE = f"""\
from airflow.sdk import DAG, task
from slipway.airflow.assets import live_model

with DAG("{AFTER}", schedule=live_model("{MODEL}")):
    @task
    def greet(): print("a model went live")
    greet()
"""
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
TOLD = [
    {"notifier": SMTP, "arguments": {"to": ["ml-team@example.org"]}},
    {"notifier": "slipway.airflow.notify.webhook.WebhookNotifier", "arguments": {"endpoint": "hooks/models"}},
    {"notifier": "slipway.airflow.notify.model_registry.MlflowNotifier"},
]
QUOTAS = {"guest": {"requests_per_minute": 3}}
QUESTION = {
    "model": MODEL,
    "messages": [{"role": "user", "content": SPEC["gate"]["smoke"][0]["prompt"]}],
    "max_tokens": 20,
}
PROPAGATED_S = 2
"""Every worker of the front reads the file of keys at most once a second."""


class World:
    """An Airflow, the laptop's cluster, store and Hub, and what is told; `slipway` is that of the Airflow's environment."""

    def __init__(self, chain, airflow, python, transcript, **told):
        self.chain, self.airflow, self.transcript = chain, airflow, transcript
        self.mail, self.hook, self.mlflow = told["mail"], told["hook"], told["mlflow"]
        self._command = python.with_name("slipway")
        self._environment = {"PATH": os.defpath, "HOME": str(chain.scratch), "COLUMNS": "140"} | chain.environment
        self._environment |= {
            "SLIPWAY_AIRFLOW": airflow.address,
            "SLIPWAY_AIRFLOW_USER": USER,
            "SLIPWAY_AIRFLOW_PASSWORD": airflow.password,
        }

    def slipway(self, *arguments, code=0):
        """Run the installed command in a folder that has nothing; what it prints."""
        words = " ".join(("slipway", *arguments))
        command = [self._command, *arguments]
        return self.transcript.run(command, shown=words, code=code, env=self._environment, cwd=self.chain.scratch)

    def alias(self):
        """The release that has the alias `live` in MLflow's registry, by its version; None if there is none."""
        version = self.mlflow.aliased(MODEL, "live")
        return version and (
            version["version"],
            {tag["key"]: tag["value"] for tag in version["tags"]}["slipway.release"],
        )

    def show_alias(self):
        version, release = self.alias()
        self.transcript.note(f"the alias `live` of {MODEL} in MLflow's registry", f"version {version}, {release}")

    def events(self):
        """The CloudEvents that have arrived."""
        return [json.loads(body) for _, _, body in self.hook.posts]

    def show_runs(self):
        runs = "\n".join(f"{kind}: {state}" for kind, state in self.runs_after())
        self.transcript.note(f"runs of {AFTER}, whose schedule is live_model({MODEL!r})", runs)

    def runs_after(self):
        """The runs of the DAG that an asset starts: whether each ended well."""
        runs = self.airflow.get(f"/api/v2/dags/{AFTER}/dagRuns").json()["dag_runs"]
        return [(run["run_type"], run["state"]) for run in runs if run["state"] in ("success", "failed")]


@pytest.fixture(scope="module", params=[PINNED, *OLDER])
def world(request, wheel, airflow_of, services, tmp_path_factory):
    version, home = request.param, tmp_path_factory.mktemp("airflow")
    python = airflow_of(version, *NOTIFIERS)
    told, scratch = tmp_path_factory.mktemp("told"), tmp_path_factory.mktemp("person") / "scratch"
    scratch.mkdir()
    shutil.rmtree(FOLDER, ignore_errors=True)
    write_files(home)
    replaced = {wheel.parent: ".", python.parent.parent: "venv", home: "~", FOLDER: "~/stack", REPOSITORY: "checkout"}
    transcript = Transcript(f"airflow-{version}", replaced)
    requirements = (str(each).removeprefix(f"{wheel.parent}/") for each in with_extra(version, wheel, *NOTIFIERS))
    transcript.note(f"uv venv venv && uv pip install {' '.join(requirements)}", "")
    transcript.note("cat models.py", (home / "dags" / "models.py").read_text())
    options = ("--specs", SPECS, "--without-airflow", "--site", home / "site.yaml")
    with contextlib.ExitStack() as running:
        mail, hook = running.enter_context(Mail(services, told)), running.enter_context(WebhookInbox())
        mlflow = running.enter_context(Mlflow(services, told))
        chain = running.enter_context(own_chain(scratch, *options, airflow=False))
        connections = {
            "AIRFLOW_CONN_SMTP_DEFAULT": mail.connection,
            "AIRFLOW_CONN_SLIPWAY_WEBHOOK": hook.connection,
            "AIRFLOW_CONN_MLFLOW_DEFAULT": mlflow.connection,
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes"}),
        }
        environment = chain.stack.airflow_environment() | connections
        airflow = running.enter_context(PlainAirflow(python, home, environment))
        until(lambda: airflow.get(f"/api/v2/dags/release__{MODEL}").is_success, timeout_s=STARTS_S)
        yield World(chain, airflow, python, transcript, mail=mail, hook=hook, mlflow=mlflow)


def write_files(home):
    """The DAG files of a person, a spec, and a site with keys, quotas and notifiers."""
    for folder in (home / "dags", SPECS):
        folder.mkdir(parents=True)
    (home / "dags" / "models.py").write_text(DAG_FILE.format(specs=SPECS))
    (home / "dags" / "after.py").write_text(AFTER_FILE)
    (SPECS / "demo.yaml").write_text(yaml.safe_dump(made_light(json.loads(json.dumps(SPEC)))))
    site = yaml.safe_load((REPOSITORY / "sites" / "local.yaml").read_text())
    site["serving"]["authentication"] = {"quotas": QUOTAS}
    site["notifications"] = {"send": TOLD}
    (home / "site.yaml").write_text(yaml.safe_dump(site))


def test_a_release_moves_the_alias_and_starts_the_dag_that_runs_after_it(world):
    world.transcript.title("A release: the alias of MLflow's registry moves, and a DAG runs after it")
    world.slipway("doctor")
    world.slipway("key", "create", "slipway", "--for-steps")
    world.slipway("release", MODEL, "--revision", "v1")
    live = world.chain.live()
    until(world.alias)
    assert world.alias() == ("1", live)
    world.show_alias()
    until(world.runs_after)
    assert world.runs_after() == [("asset_triggered", "success")]
    world.show_runs()
    until(world.events)
    assert [each["type"].rpartition(".")[2] for each in world.events()] == ["promoted"]


def test_a_refusal_reaches_mailbox_and_webhook_with_its_reason(world):
    live, alias = world.chain.live(), world.alias()
    world.transcript.title("A refusal: a mail and a CloudEvent say why, the alias stays")
    world.slipway("release", MODEL, "--revision", "damaged", code=1)
    subject = until(lambda: next((each for each in world.mail.mails() if "refused" in each), None))
    body = world.mail.mails()[subject].get_body(("plain", "html")).get_content()
    world.transcript.note("the mail", f"Subject: {subject}\n\n{body}")
    event = until(lambda: next((each for each in world.events() if each["type"].endswith("refused")), None))
    world.transcript.note("the webhook", json.dumps(event, indent=1))
    assert event["data"]["why"][0].startswith("failed: ")
    assert (world.chain.live(), world.alias()) == (live, alias)


@pytest.fixture
def door(world):
    """The live model's own address, for clients with and without keys."""
    address = world.chain.address(MODEL)
    with httpx.Client(base_url=f"http://{address.host}:{address.ports['http']}", timeout=PATIENCE_S) as client:
        yield client


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def is_let_in(door, key):
    return door.get("/v2/models/" + MODEL, headers=bearer(key)).status_code == 200


def test_the_doors_of_the_live_model_are_locked_and_keys_change_under_load(world, door):
    def asked(method, path, key=None, **body):
        answer = door.request(method, path, headers=bearer(key) if key else {}, **body)
        after = answer.headers.get("retry-after")
        said = f"{answer.status_code}{f' Retry-After: {after}' if after else ''} {answer.text[:160]}"
        world.transcript.note(f"{method} {path} {'with a key' if key else 'without a key'}", said)
        return answer.status_code

    world.transcript.title("Doors")
    assert asked("POST", "/v1/chat/completions", json=QUESTION) == 401
    guest = world.slipway("key", "create", "guest", "--days", "1")
    until(lambda: is_let_in(door, guest))
    assert asked("POST", "/v1/chat/completions", guest, json=QUESTION) == 200
    until(lambda: asked("POST", "/v1/chat/completions", guest, json=QUESTION) == 429)
    first = world.slipway("key", "create", "alice")
    until(lambda: is_let_in(door, first))
    assert asked("POST", "/v2/repository/index", first, json={}) == 404

    world.transcript.title("A key is replaced under load")
    sent = {"key": first}

    def ask():
        return kept.post("/v1/chat/completions", headers=bearer(sent["key"]), json=QUESTION).raise_for_status()

    (row,) = [line for line in world.slipway("key", "list").splitlines() if "alice" in line]
    with (
        httpx.Client(base_url=door.base_url, timeout=PATIENCE_S) as kept,
        KeptClient(ask) as one,
        KeptClient(ask) as two,
    ):
        second = world.slipway("key", "create", "alice")
        until(lambda: is_let_in(door, second))
        time.sleep(PROPAGATED_S)
        sent["key"] = second
        before = len(one.answers), len(two.answers)
        until(lambda: len(one.answers) > before[0] + 2 and len(two.answers) > before[1] + 2)
        world.slipway("key", "revoke", "alice", "--id", re.search(r"\b[0-9a-f]{8}\b", row)[0])
        until(lambda: not is_let_in(door, first))
        last = len(one.answers), len(two.answers)
        until(lambda: len(one.answers) > last[0] + 2 and len(two.answers) > last[1] + 2)
    answered, failed = one.answers + two.answers, one.failures + two.failures
    world.transcript.note("two clients meanwhile", f"{len(answered)} requests answered, {len(failed)} failed")
    assert failed == []


def test_the_next_release_moves_the_alias_and_a_rollback_moves_it_back(world):
    world.transcript.title("The next revision goes live, and is taken back")
    before = world.chain.live()
    world.slipway("release", MODEL, "--revision", "v2")
    live = world.chain.live()
    until(lambda: world.alias() == ("2", live))
    world.show_alias()
    world.slipway("rollback", MODEL, "--reason", "the transcript shows the way back")
    until(lambda: world.alias() == ("1", before))
    world.show_alias()
    until(lambda: len(world.runs_after()) > 1)
    assert set(world.runs_after()) == {("asset_triggered", "success")}
    world.show_runs()
