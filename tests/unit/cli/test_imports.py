"""What each command imports: nobody waits for the client of a service that the command does not talk to."""

import gc
import sys

import pytest

from slipway.cli.__main__ import COMMANDS
from tests.support.imports import packages_after

HEAVY = {"boto3", "grpc", "httpx", "kubernetes", "numpy", "requests", "tritonclient"}
"""Packages that take from 0.1 to 2 s of CPU to import."""


@pytest.mark.parametrize(
    "module",
    [
        "slipway.cli.__main__",
        "slipway.cli.files.documents",
        "slipway.cli.ask.ask",
        "slipway.cli.ask.batch",
        "local.stack",
    ],
)
def test_no_heavy_client_is_imported_before_it_is_needed(module):
    assert packages_after(f"import {module}") & HEAVY == set()


def test_a_command_does_not_import_the_others():
    assert "rich" not in packages_after("import slipway.cli.__main__")


def test_the_check_sees_a_heavy_import():
    assert "httpx" in packages_after("import slipway.cli.airflow.api")


def test_garbage_is_looked_for_while_a_command_runs_and_not_during_its_imports(slipway, monkeypatch):
    class Module:
        """A command's module, which says while the command is looked up whether garbage is looked for."""

        @property
        def ask(self):
            print("imports:", gc.isenabled())
            return lambda: print("runs:", gc.isenabled())

    monkeypatch.setitem(sys.modules, "probe", Module())
    monkeypatch.setitem(COMMANDS, "ask", "probe")

    assert slipway("ask") == (0, "imports: False\nruns: True\n")
    assert gc.isenabled()
