"""Airflow loses its database and starts again with an empty one, days after the objects in the store were written."""

import contextlib
import json
from datetime import UTC, datetime, timedelta

import yaml

from local.private_files import write_private
from slipway.cli.airflow.api import NoSuchDagError
from tests.local.chain.killed_airflow import kill_all
from tests.local.chain.own_stack import FOLDER
from tests.local.chain.whole_chain import MODEL, RUN_TIMEOUT_S
from tests.support.waiting import until

DAG = f"release__{MODEL}"
LOST_RUN = "lost-with-the-database"
AIRFLOW = ["scheduler", "triggerer", "dag-processor", "api-server", "execution-api"]
SITE_MAP = ("slipway-site", "slipway")


def lose_database(chain, revision):
    """Kill all of Airflow as soon as a run has the model, and delete what it kept."""
    run = chain.trigger(DAG, LOST_RUN, revision=revision)
    until(chain.lease_holder, timeout_s=RUN_TIMEOUT_S, said=lambda: chain.task_states(run))
    chain.stack.supervisor.stop(AIRFLOW)
    kill_all(chain.stack.airflow)
    for file in chain.stack.airflow.folder.glob("airflow.db*"):
        file.unlink()


def make_older(chain, age=timedelta(days=3)):
    """Every object but the channels was written that long ago; the object store, which ends, reads it when it starts."""
    chain.stack.supervisor.stop(["object-store"])
    index = FOLDER / "object-store" / "kept" / chain.site.object_store.bucket / "index.jsonl"
    written = (datetime.now(UTC) - age).isoformat()
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    for key, described in (entry for line in lines for entry in line.items() if entry[1]):
        if not key.startswith("channels/"):
            described["last_modified"] = written
    index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def history_of_runs(chain):
    """Whether Airflow has runs of the model; None until it has read the DAG."""
    with contextlib.suppress(NoSuchDagError):
        return "runs" if chain.airflow.runs(DAG, 1) else "empty"
    return None


@contextlib.contextmanager
def site_with(chain, **changes):
    """Give Airflow and the steps another site file within the block: each of their processes reads it when it starts."""
    before = change_site(chain, **changes)
    try:
        yield
    finally:
        _write_site(chain, before)


def change_site(chain, **changes):
    """Give them another site file until the stack's `up` rewrites it; the text of the one before."""
    before = chain.stack.site_file.read_text()
    _write_site(chain, yaml.safe_dump(yaml.safe_load(before) | changes))
    return before


def _write_site(chain, text):
    write_private(chain.stack.site_file, text)
    chain.core.patch_namespaced_config_map(*SITE_MAP, {"data": {"site.yaml": text}})
