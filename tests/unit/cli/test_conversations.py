"""A conversation with `slipway ask NAME` on a terminal."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios

import pytest

from slipway.cli.ask.conversation import Conversation
from slipway.tasks.contracts.errors import InputError
from tests.fakes.servers.triton_http import INPUTS, TritonHttpServer
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"


def message(role, content):
    return {"role": role, "content": content}


class Typed:
    """A person who types these lines, and then Ctrl-D."""

    def __init__(self, *lines):
        self.lines = list(lines)

    def __call__(self, _):
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line


class Model:
    """Answers with the number of the question, or raises what comes instead."""

    def __init__(self, *instead):
        self.asked, self.instead = [], list(instead)

    def __call__(self, answer, messages):
        self.asked.append(list(messages))
        answer.text = f"Answer {len(self.asked)}"
        if self.instead and (raised := self.instead.pop(0)) is not None:
            raise raised


def test_each_answer_follows_from_all_messages_before_it():
    model = Model()

    Conversation(model, "Be brief.", Typed("One?", "Two?")).run()

    first = [message(SYSTEM, "Be brief."), message(USER, "One?")]
    assert model.asked == [first, [*first, message(ASSISTANT, "Answer 1"), message(USER, "Two?")]]


def test_a_reset_forgets_everything_but_the_system_prompt():
    model = Model()

    Conversation(model, "Be brief.", Typed("One?", "/reset", "Two?")).run()

    assert model.asked[1] == [message(SYSTEM, "Be brief."), message(USER, "Two?")]


def test_a_system_prompt_can_be_set_in_the_middle(capsys):
    model = Model()

    Conversation(model, None, Typed("/system", "One?", "/system Rhyme.", "/system", "Two?")).run()

    assert "There is no system prompt." in capsys.readouterr().err
    assert model.asked[0] == [message(USER, "One?")]
    assert model.asked[1][0] == message(SYSTEM, "Rhyme.")
    assert len(model.asked[1]) == 4


def test_quit_ends_and_an_unknown_command_lists_those_there_are(capsys):
    model = Model()

    Conversation(model, None, Typed("/sytem x", "  ", "", "/quit", "Never?")).run()

    assert "There is no command /sytem" in capsys.readouterr().err
    assert model.asked == []


def test_a_stopped_answer_stays_as_far_as_it_arrived():
    model = Model(KeyboardInterrupt())

    Conversation(model, None, Typed("One?", "Two?")).run()

    assert model.asked[1] == [message(USER, "One?"), message(ASSISTANT, "Answer 1"), message(USER, "Two?")]


def test_a_message_that_was_refused_is_not_part_of_the_conversation(capsys):
    model = Model(InputError("the prompt is too long", remedy="Shorten it."))

    Conversation(model, None, Typed("One?", "Two?")).run()

    assert "the prompt is too long" in capsys.readouterr().err
    assert model.asked[1] == [message(USER, "Two?")]


def test_an_interrupt_at_the_prompt_ends_nothing(capsys):
    model = Model()

    Conversation(model, None, Typed(KeyboardInterrupt(), "One?")).run()

    assert "Ctrl-D or /quit ends the conversation" in capsys.readouterr().err
    assert len(model.asked) == 1


def own_terminal():
    """Take the terminal, and its Ctrl-C, which a job in a shell's background begins with ignoring."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """The command in a process of its own, on a terminal."""

    def __init__(self, port):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slipway", "ask", "demo", "--host", f"127.0.0.1:{port}"],
            env={"PYTHONPATH": str(REPOSITORY), "TERM": "dumb", "PATH": os.defpath},
            cwd=REPOSITORY,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=own_terminal,  # noqa: PLW1509
        )
        os.close(slave)
        self.shown = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, text):
        """Everything shown up to `text`, which is then forgotten."""
        while text not in self.shown:
            assert select.select([self.master], [], [], PATIENCE_S)[0], f"{text!r} was not shown: {self.shown!r}"
            self.shown += os.read(self.master, 4096).decode()
        before, _, self.shown = self.shown.partition(text)
        return before

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def triton():
    answers = [{"text_output": "Par"}, {"text_output": "is."}, {"text_output": "", "finish_reason": "stop"}]
    with TritonHttpServer(inputs=(*INPUTS, "messages"), answers=answers) as server:
        yield server


@pytest.fixture
def terminal(triton):
    opened = Terminal(triton.port)
    yield opened
    opened.close()


def test_ctrl_c_stops_an_answer_and_ctrl_d_the_conversation(triton, terminal):
    terminal.wait_for("> ")
    triton.go_on.clear()
    terminal.type("Where?\n")
    terminal.wait_for("Par")
    terminal.type("\x03")
    terminal.wait_for("[stopped]")
    terminal.wait_for("> ")
    triton.go_on.set()
    terminal.type("And now?\n")
    terminal.wait_for("Paris.")
    terminal.wait_for("ended by stop")
    terminal.wait_for("> ")
    terminal.type("\x04")

    assert terminal.process.wait(timeout=PATIENCE_S) == 0
    assert json.loads(triton.asked[1]["messages"]) == [
        message(USER, "Where?"),
        message(ASSISTANT, "Par"),
        message(USER, "And now?"),
    ]


def test_a_model_without_messages_refuses_a_conversation_before_it_begins(triton):
    triton.inputs = INPUTS
    opened = Terminal(triton.port)

    opened.wait_for("demo takes no messages")

    assert opened.process.wait(timeout=PATIENCE_S) == 65
    opened.close()
