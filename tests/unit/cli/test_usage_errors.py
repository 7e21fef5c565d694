"""A command line that cannot be understood is a wrong input: exit code 65, as the table of docs/command.md says."""

import inspect
import os
import re
import subprocess
import sys
import tomllib
import typing

import pytest

from slipway.cli.__main__ import COMMANDS, function_of, main
from slipway.tasks.contracts.errors import InputError
from tests.fakes.servers.airflow_server import PASSWORD, USER, Script
from tests.support.paths import REPOSITORY

ARGUMENTS = {
    "validate": ["a-file"],
    "migrate": ["a-file"],
    "key": ["list"],
    "plan": ["demo"],
    "release": ["demo"],
    "approve": ["demo"],
    "rollback": ["demo"],
    "explain": ["demo"],
    "init": ["acme/model"],
    "logs": ["demo"],
    "cancel": ["demo"],
    "open": ["demo"],
    "report": ["demo", "--html", "page.html"],
    "ask": ["demo", "Who?"],
    "batch": ["demo", "prompts.jsonl", "-o", "results.jsonl"],
    "compare": ["a", "b", "prompts.jsonl"],
}

REAL = ("nan", "inf", "1e400", "100000001")


def options_with_a_fraction():
    """Command and option of every number that may have a fraction."""
    for command in COMMANDS:
        function = function_of(command)
        hints = typing.get_type_hints(function, include_extras=True)
        for name in inspect.signature(function).parameters:
            kind, *_ = typing.get_args(hints[name]) or (hints[name],)
            if float in (kind, *typing.get_args(kind)):
                yield command, f"--{name.replace('_', '-')}"


def test_the_version_is_that_of_the_project(slipway):
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

    code, printed = slipway("--version")

    assert code == 0
    assert re.fullmatch(rf"slipway {project['version']}( \(commit [0-9a-f]{{12}}(, changed)?\))?\n", printed)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_models(airflow, shell):
    airflow.dags |= dict.fromkeys(("release__demo-llama", "release__other", "retention"), Script([]))
    login = {"SLIPWAY_AIRFLOW": airflow.address, "SLIPWAY_AIRFLOW_USER": USER, "SLIPWAY_AIRFLOW_PASSWORD": PASSWORD}
    python = {"PATH": os.defpath, "PYTHONPATH": str(REPOSITORY)}

    def completed(line):
        asked = {"bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}}.get(
            shell, {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        )
        environment = {**python, **login, **asked, "_SLIPWAY_COMPLETE": f"complete_{shell}"}
        command = [sys.executable, "-m", "slipway"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert "rollback" in completed("slipway roll")
    models = completed("slipway release de")
    assert "demo-llama" in models
    assert "other" not in models


@pytest.mark.parametrize("number", REAL)
@pytest.mark.parametrize(("command", "option"), [*options_with_a_fraction()])
def test_a_number_that_no_clock_can_wait_is_a_wrong_input(slipway, command, option, number):
    code, printed = slipway(command, *ARGUMENTS.get(command, []), option, number)

    assert (code, option in printed) == (InputError.exit_code, True)


def test_options_with_a_fraction_are_found():
    assert {("release", "--timeout"), ("ask", "--top-p"), ("status", "--every")} <= {*options_with_a_fraction()}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_of_any_command_is_a_wrong_input(slipway, command):
    code, printed = slipway(command, *ARGUMENTS.get(command, []), "--no-such-option")

    assert code == InputError.exit_code
    assert "--no-such-option" in printed


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_missing_argument_of_any_command_is_a_wrong_input(slipway, command):
    code, printed = slipway(command)

    assert code == InputError.exit_code
    assert "Missing argument" in printed


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-option", "status"],
        ["no-such-command"],
        [],
        ["ask", "demo", "Who?", "--max-tokens", "0"],
        ["release", "demo", "--timeout", "soon"],
        ["migrate", "a-file", "--to", "no-such-kind"],
    ],
)
def test_any_other_usage_error_is_a_wrong_input(slipway, words):
    assert slipway(*words)[0] == InputError.exit_code


def test_the_documentation_has_a_row_for_every_command():
    rows = [
        line for line in (REPOSITORY / "docs/command.md").read_text().splitlines() if line.startswith("| `slipway ")
    ]
    named = {word for row in rows for word in re.findall(r"`(?:slipway )?([a-z]+)[ `]", row.split(" | ")[0])}

    assert set(COMMANDS) <= named


def test_a_misspelt_command_is_answered_with_the_nearest_one(slipway):
    assert "Did you mean 'release'?" in slipway("relaese", "demo")[1]


def test_help_of_every_command_ends_well(slipway):
    for command in COMMANDS:
        code, printed = slipway(command, "--help")

        assert code == 0
        assert f"slipway {command}" in printed


@pytest.mark.parametrize(
    ("arguments", "usage"), [(["--help"], "slipway [OPTIONS]"), (["plan", "--help"], "slipway plan")]
)
def test_the_command_calls_itself_slipway_however_it_is_started(arguments, usage):
    environment = {"PATH": os.defpath, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "120"}

    done = subprocess.run(
        [sys.executable, "-m", "slipway", *arguments], env=environment, capture_output=True, text=True, check=True
    )

    assert f"Usage: {usage}" in done.stdout
    assert "python -m" not in done.stdout


def test_the_remedy_of_an_error_has_a_line_of_its_own_on_stderr(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["slipway", "doctor", "--images"])

    with pytest.raises(SystemExit):
        main()

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "slipway: --images needs a site file, whose images it looks at.",
        "  → Name one with --site.",
    ]
