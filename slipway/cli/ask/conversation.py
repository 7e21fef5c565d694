"""A conversation on a terminal: each answer follows from all messages before it."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from slipway.cli.ask.printed_answer import PrintedAnswer
from slipway.cli.ask.prompt_inputs import Message
from slipway.cli.error_text import print_error
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import PipelineError

HELP = """\
/reset         forget all messages but the system prompt
/system        show the system prompt
/system TEXT   set the system prompt; messages stay
/quit          end, as Ctrl-D does
Ctrl-C         stop an answer; what arrived of it stays in the conversation
A message that begins with / needs a space before it."""
PROMPT = "> "

Answer = Callable[[PrintedAnswer, Sequence[Message]], None]
"""Prints the answer to the messages, and keeps in the first argument what has arrived."""
ReadLine = Callable[[str], str]


class Conversation:
    """The messages so far, and the person's commands."""

    def __init__(self, answer: Answer, system: str | None = None, read_line: ReadLine = input) -> None:
        self._answer, self._system, self._read_line = answer, system, read_line
        self._messages: list[Message] = []

    def run(self) -> None:
        """Answer message after message until the person ends the conversation."""
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415 - lines can be edited and recalled once it is imported

        echo("/help lists the commands; Ctrl-D ends the conversation.", err=True)
        while True:
            try:
                line = self._read_line(PROMPT)
            except EOFError:
                echo("", err=True)
                return
            except KeyboardInterrupt:
                echo("\nCtrl-D or /quit ends the conversation.", err=True)
                continue
            if line.startswith("/"):
                if not self._obey(line):
                    return
            elif line.strip():
                self._ask(line.strip())

    def _obey(self, line: str) -> bool:
        """Obey a command; False: end the conversation."""
        command, _, argument = line.partition(" ")
        match command.strip():
            case "/quit":
                return False
            case "/reset":
                self._messages.clear()
                echo("All messages are forgotten.", err=True)
            case "/system" if argument.strip():
                self._system = argument.strip()
            case "/system":
                echo(self._system or "There is no system prompt.", err=True)
            case "/help":
                echo(HELP, err=True)
            case other:
                echo(f"There is no command {other}. Commands:\n{HELP}", err=True)
        return True

    def _ask(self, text: str) -> None:
        system = [{"role": "system", "content": self._system}] if self._system else []
        messages = [*self._messages, {"role": "user", "content": text}]
        answer = PrintedAnswer()
        try:
            self._answer(answer, [*system, *messages])
        except KeyboardInterrupt:
            echo("[stopped]", err=True)
        except PipelineError as error:
            print_error(error)
            echo("Your last message is not part of the conversation.", err=True)
            return
        if answer.text:
            self._messages = [*messages, {"role": "assistant", "content": answer.text}]


def is_on_terminal() -> bool:
    """Whether a person types what this command reads."""
    return sys.stdin is not None and sys.stdin.isatty()
