"""No text of a stranger controls the terminal that shows it, and none is markup."""

import ast
import io
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from slipway.cli import terminal
from slipway.cli.__main__ import main
from slipway.cli.console import console_on
from slipway.cli.terminal import printable
from tests.fakes.servers.hostile_proxy import TERMINAL
from tests.fakes.servers.triton_http import TritonHttpServer
from tests.unit.cli.runs import DAG, failed

CLI = Path(terminal.__file__).parent
OBEYED = [*map(chr, (0, 7, 8, 0x0D, 0x1B, 0x7F, 0x9B, 0x9D)), "\u202e", "\u2066", "\u200f", "\ud800"]


@pytest.mark.parametrize("character", OBEYED, ids=ascii)
def test_what_a_terminal_obeys_becomes_visible(character):
    shown = printable(f"a{character}b")

    assert (len(shown), shown[0], shown[2]) == (3, "a", "b")
    assert shown[1].isprintable()
    assert character not in shown


def test_other_text_stays_as_it_is():
    text = "line\n\ttab é 漢字 👩\u200d💻 ✓ →"

    assert printable(text) == text


def test_a_sequence_that_arrives_in_two_pieces_is_caught(capsys):
    pieces = [{"text_output": part} for part in ("a\x1b", "]52;c;eA==\x07")]
    with TritonHttpServer(answers=pieces) as triton:
        sys.argv = ["slipway", "ask", "demo", "q", "--host", f"127.0.0.1:{triton.port}", "--quiet"]
        with pytest.raises(SystemExit):
            main()

    assert capsys.readouterr().out == "a\u241b]52;c;eA==\u2407\n"


def test_a_console_styles_its_own_texts_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", out)
    console = console_on()
    table = Table("title")
    table.add_row(Text(TERMINAL, "red"))
    table.add_row("[bold]x[/bold] [/]")

    console.print(table)
    console.print("[/] ", TERMINAL)

    drawn = out.getvalue()
    assert "\x1b[31m" in drawn
    assert "[bold]x[/bold] [/]" in drawn
    assert [part for part in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e") if part in drawn] == []


def test_what_an_airflow_says_is_shown_as_text(slipway, airflow):
    airflow.dags[DAG] = failed("publish", "InputError", f"no {TERMINAL}", f"Do {TERMINAL}.")

    code, printed = slipway("release", "demo")

    assert (code, "\x1b" in printed, "\u202e" in printed, "\u241b]52" in printed) == (1, False, False, True)


def test_everything_is_printed_through_one_place():
    calls = {
        (file.name, ast.unparse(node.func))
        for file in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func)
        in {"typer.echo", "typer.secho", "click.echo", "print", "Console", "sys.stdout.write"}
    }

    assert calls == {("terminal.py", "typer.echo")}
