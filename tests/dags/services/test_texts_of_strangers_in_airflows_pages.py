"""What a spec, a Hub and a release's results say is text in Airflow's own pages, as a browser shows them."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from airflow.models.hitl import HITLDetail
from airflow.utils.session import create_session

from slipway.airflow.approval import changes, evidence
from tests.dags.results_to_approve import passed, planned
from tests.dags.services.api_server import HOSTILE, shows
from tests.dags.services.people import ADMIN
from tests.dags.services.stored_runs import store_dags, stored_run
from tests.fakes.releases import SPEC
from tests.support.browser import CHROMIUM, page
from tests.support.strange_texts import questions_of_specs, texts

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
    # Airflow reads the serialized DAG of a run that is deleted; other tests of the tier have stored more of them
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist"),
]

ADDRESS = "http://stranger.example/x"
CODE = "alert(`a stranger`)"
TEXTS = texts(CODE, ADDRESS)
DAG, RUN = "release__demo", "hostile"
TASKS = f"/dags/{DAG}/runs/{RUN}/tasks"

BESIDE_CODE = """
(() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const {data, parentElement} = walker.currentNode;
    if (/stranger/.test(data) && !parentElement.closest("code")) found.push(data);
  }
  return found;
})()
"""
"""Texts of a stranger that are outside of every code block."""


STRANGER = shows("stranger")


@pytest.fixture
def run(database, airflow, runs, tmp_path, monkeypatch):
    """A run in Airflow's database whose spec, plan, gate and log are hostile."""
    gate = SPEC["gate"] | {"smoke": questions_of_specs(CODE, ADDRESS)}
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(SPEC | {"gate": gate}))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    bag = store_dags()
    plan, gate = planned(runs, *TEXTS[:15], warnings=TEXTS), passed(runs, not_judged=TEXTS)
    states = {"plan": "success", "approval": "awaiting_input"}
    log = (
        Path(os.environ["AIRFLOW_HOME"]) / "logs" / f"dag_id={DAG}" / f"run_id={RUN}" / "task_id=plan" / "attempt=1.log"
    )
    log.parent.mkdir(parents=True)
    now = datetime.now(UTC)
    lines = [{"timestamp": now.isoformat(), "event": text, "level": "info", "logger": "task"} for text in TEXTS]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    body = "\n\n".join((evidence(gate, f"{airflow.address}/report"), changes(plan)))
    with stored_run(bag, DAG, RUN, states, note=f"![picture]({ADDRESS})") as tasks:
        with create_session() as session:
            session.add(
                HITLDetail(ti_id=tasks["approval"], options=["Approve"], subject="Promote?", body=body, params={})
            )
        yield


def test_no_page_runs_or_fetches_a_strangers_text_but_a_note_that_a_person_wrote(run, airflow, tmp_path):
    server = airflow.address
    with page(tmp_path / "profile") as shown:
        airflow.log_in(shown, ADMIN)

        def judged(path, *clicks, ready=STRANGER):
            """What the page asked strangers for and opened, and the elements that hold their texts."""
            shown.requested.clear()
            shown.open(server + path)
            for label in clicks:
                shown.press(label)
            shown.wait_for(ready)
            foreign = [url for url in shown.requested if not url.startswith((server, "data:", "blob:"))]
            return foreign, shown.dialogs, shown.run(HOSTILE)

        clean = ([], [], [])
        assert judged(f"/dags/{DAG}", "Dag Docs") == clean
        assert shown.run(BESIDE_CODE) == []
        assert judged(f"{TASKS}/approval/required_actions") == clean
        assert shown.run(BESIDE_CODE) == []
        assert judged(f"{TASKS}/plan") == clean
        assert judged(f"/dags/{DAG}", "Trigger Dag", ready=shows("branch, tag or")) == clean

        # a person's note is Markdown as Airflow shows it, with its images: the judge sees such a request
        foreign, dialogs, elements = judged(
            f"/dags/{DAG}/runs/{RUN}", ready="!!document.querySelector('[alt=picture]')"
        )
        assert (set(foreign), dialogs, len(elements)) == ({ADDRESS}, [], 1)
