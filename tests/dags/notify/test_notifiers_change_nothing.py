"""Whatever a notifier does, its caller goes on in bounded time, and a person reads what was wrong."""

import threading
from dataclasses import replace

import pytest
from airflow.sdk import BaseNotifier

from slipway.airflow.notify.notice import KEY, MARKDOWN_CHARS, Notice, markdown
from slipway.airflow.notify.sending import ERROR_CHARS, problems, send
from slipway.tasks.contracts.notifications import Notifications, Notifier
from tests.support.waiting import PATIENCE_S

NOTICE = Notice("promoted", "demo", "2026-01-01T00:00:00+00:00", "release__demo", "manual__1", "demo-1")
HELD = threading.Event()
CALLS = []


class Records(BaseNotifier):
    """Keeps what it is called with."""

    template_fields = ("text",)

    def __init__(self, text="", places=()):
        super().__init__()
        self.text, self.places = text, places

    def notify(self, context):
        CALLS.append((self.text, self.places, context[KEY]))


class Raises(BaseNotifier):
    """Fails, with a secret in its text."""

    def notify(self, context):
        raise OSError("no route to https://ann:password@example.org")


class TellsMuch(BaseNotifier):
    """Fails, with a secret that is longer than what is kept of its text."""

    def notify(self, context):
        raise OSError(f"no route to https://ann:{'p' * 2 * ERROR_CHARS}@example.org")


class Leaves(BaseNotifier):
    """Would end the process."""

    def notify(self, context):
        raise SystemExit(1)


class Hangs(BaseNotifier):
    """Never returns by itself."""

    def notify(self, context):
        HELD.wait()


class Asks(BaseNotifier):
    """Asks Airflow for something, through a channel that takes one question at a time."""

    channel = threading.Lock()

    def notify(self, context):
        free = self.channel.acquire(blocking=False)
        HELD.wait(0.1)
        CALLS.append(free)
        if free:
            self.channel.release()


class Stranger:
    """No notifier."""


def of(name, **arguments):
    module = __name__ if not name.startswith("no.") else ""
    return Notifier(notifier=f"{module}.{name}".lstrip("."), arguments=arguments)


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    HELD.clear()
    yield CALLS
    HELD.set()


@pytest.mark.parametrize(
    ("bad", "arguments", "words"),
    [
        ("Raises", {}, ("failed: found OSError", "(not shown: it may be a secret)", "Correct its arguments")),
        ("Leaves", {}, ("failed: found SystemExit", "expected a call that returns")),
        ("Hangs", {}, ("did not finish: found still running after", "Check the service")),
        ("Stranger", {}, ("cannot be imported", "expected a class derived from airflow.sdk.BaseNotifier")),
        ("Missing", {}, ("cannot be imported", "Install its provider")),
        ("no.such.Notifier", {}, ("cannot be imported: found No module named 'no'", "correct the path")),
        ("Records", {"unknown": 1}, ("failed: found TypeError", "unexpected keyword argument")),
    ],
)
def test_one_that_fails_is_logged_and_the_others_are_called(calls, caplog, bad, arguments, words):
    send(
        NOTICE,
        [of(bad, **arguments), of("Records", text="{title}")],
        {},
        patience_s=8 if bad == "Hangs" else PATIENCE_S,
    )

    assert [text for text, _, _ in calls] == ["demo: demo-1 is live"]
    (record,) = (each for each in caplog.records if each.levelname == "ERROR" and "notifier" in each.message)
    assert all(each in record.message for each in words)
    assert "password" not in record.message


def test_none_is_called_while_another_asks_airflow_for_its_connection(calls):
    send(NOTICE, [of("Asks"), of("Asks"), of("Asks")], {}, patience_s=3 * PATIENCE_S)

    assert calls == [True, True, True]


def test_arguments_are_filled_in_and_never_rendered_by_airflow(calls):
    send(NOTICE, [of("Records", text="{{ conn.mail.password }} {model}", places=["{release}", "b"])], {})

    assert calls == [("{{ conn.mail.password }} demo", ["demo-1", "b"], NOTICE)]


def test_a_package_that_a_notifier_of_ours_needs_and_that_is_missing_is_known_when_dags_are_parsed():
    path = "slipway.airflow.notify.model_registry.MlflowNotifier"
    (found,) = problems(Notifications(send=(Notifier(notifier=path),)))

    assert found.what == f"notifier {path} cannot be imported"


@pytest.mark.parametrize(("lines", "address"), [(0, 40), (16, 40), (40, 900), (3, 3000)])
def test_markdown_is_no_longer_than_discord_takes_and_keeps_its_title(lines, address):
    notice = replace(NOTICE, why=("x" * 480,) * lines, run_url=f"https://airflow.example/{'r' * address}")
    text = markdown(notice)

    assert len(text) <= MARKDOWN_CHARS
    assert text.startswith(f"**{notice.title}**")
    assert (notice.run_url in text) == (address < 1000)


def test_no_part_of_a_secret_passes_where_an_error_is_cut(calls, caplog):
    send(NOTICE, [of("TellsMuch")], {})

    assert "no route" in caplog.text
    assert "ppp" not in caplog.text


def test_what_will_not_be_called_is_known_when_dags_are_parsed():
    site = Notifications(send=(of("no.such.Notifier"), of("Records")), from_specs={f"{__name__}.Records": ("text",)})
    found = problems(site, [of("Records", text="x"), of("Records", places=["x"]), of("Raises")])

    assert [each.what for each in found] == [
        "notifications of a spec name argument places, which the site does not allow",
        f"notifications of a spec name class {__name__}.Raises, which the site does not allow",
        "notifier no.such.Notifier cannot be imported",
    ]
    assert all(each.expected and each.remedy for each in found)
