"""A fake Airflow, the command as a person starts it, and what runs of it report."""

import sys

import pytest

from slipway.cli.__main__ import main
from tests.fakes.servers.airflow_server import PASSWORD, USER, AirflowServer
from tests.support.waiting import PATIENCE_S

LIMITS = (
    "kube.api.CONNECT_S",
    "kube.api.SILENT_S",
    "ask.model_connection.CONNECT_TIMEOUT_S",
    "ask.ask.LOOK_TIMEOUT_S",
    "runs.fleets.ANSWER_S",
)
"""How long clusters and models may take to answer. The fakes are threads of this process, which a busy machine may hold up for 5 s."""


@pytest.fixture
def airflow():
    with AirflowServer() as server:
        yield server


class Printed(str):
    """What a command printed on both streams, and on stdout alone."""

    __slots__ = ("out",)

    def __new__(cls, out, err):
        made = super().__new__(cls, out + err)
        made.out = out
        return made


@pytest.fixture
def slipway(airflow, monkeypatch, capsys):
    """Run the command against `airflow`; its exit code and what it printed."""
    for name, value in {
        "SLIPWAY_AIRFLOW": airflow.address,
        "SLIPWAY_AIRFLOW_USER": USER,
        "SLIPWAY_AIRFLOW_PASSWORD": PASSWORD,
        "COLUMNS": "200",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("SLIPWAY_AIRFLOW_TOKEN", "SLIPWAY_SITE"):
        monkeypatch.delenv(name, raising=False)
    for limit in LIMITS:
        monkeypatch.setattr(f"slipway.cli.{limit}", PATIENCE_S)

    def run(*arguments: str) -> tuple[int, Printed]:
        monkeypatch.setattr(sys, "argv", ["slipway", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), Printed(printed.out, printed.err)

    return run
