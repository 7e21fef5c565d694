"""Addresses that a person can open: of a run, of its approval, and of a document in the object store."""

import logging
from urllib.parse import quote

from airflow.providers.common.compat.sdk import conf

from slipway.airflow.runs import TAB
from slipway.airflow.site import current_site
from slipway.airflow.step_documents import located
from slipway.tasks.contracts.redaction import bounded
from slipway.tasks.contracts.stored.artifact import Layout

URI_CHARS = 200
log = logging.getLogger(__name__)


def run_url(dag_id: str, run_id: str) -> str:
    """The run's page; empty where `[api] base_url` is not set."""
    base = conf.get("api", "base_url", fallback=None)
    return f"{base.rstrip('/')}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}" if base else ""


def report_url(evidence: str, dag_id: str, run_id: str) -> str:
    """The address of a release's report: its page of the console, else the run's tab in Airflow, else a signed link.

    A signed link expires, and whoever has it can read the report; the other two stay, and ask who reads.
    """
    run = run_url(dag_id, run_id)
    if run and current_site().object_store.console is None:
        return f"{run}/plugin/{TAB}"
    return document_url(f"{evidence}/report.html")


def approval_url(dag_id: str, run_id: str, task_id: str) -> str:
    """The page on which a person answers; empty where there is none of the run."""
    run = run_url(dag_id, run_id)
    return f"{run}/tasks/{quote(task_id, safe='')}/required_actions" if run else ""


def document_url(uri: str) -> str:
    """The address of a document for a person: a page of the site's console, or a link that expires.

    It is signed without a request to the store. A store that gives none is logged, and the address is empty; so is the
    address of what Slipway does not store: a pod named it, and Airflow's connection may read more than the pod.
    """
    store = current_site().object_store
    if not Layout(store.root).holds(uri):
        log.error("%r is not among what Slipway stores, so there is no link to it", bounded(uri, URI_CHARS))
        return ""
    if page := store.page_of(uri):
        return page
    try:
        client, bucket, key = located(uri, current_site().airflow.aws_conn_id)
        parameters = {"Bucket": bucket, "Key": key}
        return str(client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=store.link_s))
    except Exception:
        log.exception("no link to %s can be made", uri)
        return ""
