"""Calls notifiers. Whatever one does, the release goes on: it is bounded in time, and its error is only logged."""

import functools
import importlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from slipway.airflow.notify.notice import KEY, Notice, filled_in
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.notifications import Argument, Notifications, Notifier
from slipway.tasks.contracts.redaction import bounded, redacted

if TYPE_CHECKING:
    from airflow.sdk import Context

PATIENCE_S = 15.0
"""The time that all notifiers of an event have together. Airflow ends a task's process 20 s after its success
(`[core] task_success_overtime`)."""
ERROR_CHARS = 500
PROVIDERS = "airflow.providers"
WORDS: Mapping[str, Mapping[str, str]] = {
    f"{PROVIDERS}.smtp.notifications.smtp.SmtpNotifier": {"subject": "{title}", "html_content": "{html}"},
    f"{PROVIDERS}.slack.notifications.slack.SlackNotifier": {"text": "{slack}"},
    f"{PROVIDERS}.slack.notifications.slack_webhook.SlackWebhookNotifier": {"text": "{slack}"},
    f"{PROVIDERS}.discord.notifications.discord.DiscordNotifier": {"text": "{markdown}"},
    f"{PROVIDERS}.apprise.notifications.apprise.AppriseNotifier": {"title": "{title}", "body": "{text}"},
}
"""Arguments that hold the message, by class, where a site does not give them."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "slipway.airflow.notify.model_registry.MlflowNotifier": ("mlflow",),
    "slipway.airflow.notify.webhook.WebhookNotifier": (f"{PROVIDERS}.http",),
}
"""Packages that Slipway's own notifiers import when they are called."""

log = logging.getLogger(__name__)


def send(notice: Notice, notifiers: Sequence[Notifier], context: "Context", patience_s: float = PATIENCE_S) -> None:
    """Call the notifiers in turn, and return when they are done or after `patience_s` seconds. It never raises.

    The next one is called once the last is done, or has used its equal share of the time. One that takes longer goes on
    until its process ends, and nothing waits for it.
    """
    calls = [_Call(notifier, notice, context) for notifier in notifiers]
    ends_at = time.monotonic() + patience_s
    for call in calls:  # not at once: a process of `airflow dags test` has one channel to Airflow, and no lock for it
        call.start()
        call.join(patience_s / len(calls))
    for call in calls:
        call.join(max(0.0, ends_at - time.monotonic()))
        if call.is_alive():
            call.error = UnavailableError(
                f"notifier {call.notifier.notifier} did not finish",
                found=f"still running after {patience_s:g} s",
                expected="an answer within that time",
                remedy="Check the service that it calls, and the time limit of its connection.",
            )
        if call.error is None:
            log.info("%s told of %s", call.notifier.notifier, notice.event)
        else:
            log.error("%s", call.error)


class _Call(threading.Thread):
    """One notifier in a thread that its process does not wait for."""

    def __init__(self, notifier: Notifier, notice: Notice, context: "Context") -> None:
        super().__init__(name=notifier.notifier, daemon=True)
        self.notifier, self.notice, self.context = notifier, notice, context
        self.error: PipelineError | None = None

    def run(self) -> None:
        try:
            values: Any = {**self.context, KEY: self.notice}
            loaded(self.notifier.notifier)(**arguments(self.notifier, self.notice)).notify(values)
        except PipelineError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001 - it is a stranger's code, and nothing may come of it
            self.error = PipelineError(
                f"notifier {self.notifier.notifier} failed",
                found=bounded(redacted(f"{type(error).__name__}: {error}"), ERROR_CHARS),
                expected="a call that returns",
                remedy="Correct its arguments in the site file or the spec, or its Airflow connection.",
            )


def arguments(notifier: Notifier, notice: Notice) -> dict[str, Any]:
    """The arguments with every placeholder filled in, and the message where a class is known to take it.

    They are filled in here and not by Airflow's templates: those read connections and variables, and would take a
    stranger's text for a template.
    """
    given = {**WORDS.get(notifier.notifier, {}), **notifier.arguments}
    return {name: _filled_in(argument, notice) for name, argument in given.items()}


def _filled_in(argument: Argument, notice: Notice) -> Argument:
    match argument:
        case str():
            return filled_in(argument, notice)
        case list():
            return [filled_in(text, notice) for text in argument]
        case dict():
            return {name: filled_in(text, notice) for name, text in argument.items()}
        case _:
            return argument


def loaded(path: str) -> type[BaseNotifier]:
    """The class of an import path.

    Raises:
        InputError: there is none, or it is no notifier.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _unknown(path, bounded(str(error), ERROR_CHARS)) from error
    if not (isinstance(found, type) and issubclass(found, BaseNotifier)):
        raise _unknown(path, f"{found!r}"[:ERROR_CHARS])
    return found


def problems(notifications: Notifications, of_spec: Sequence[Notifier] = ()) -> list[InputError]:
    """What can be said while DAGs are parsed, without importing a notifier's module."""
    found = [
        InputError(
            f"notifications of a spec name {refused}, which the site does not allow",
            expected="what notifications.from_specs of the site lists",
            remedy="Remove it from the spec, or add it to the site file. Until then it is not called.",
        )
        for each in of_spec
        if (refused := notifications.refuses(each))
    ]
    paths = dict.fromkeys(each.notifier for each in notifications.of(tuple(of_spec)))
    return [*found, *(_unknown(path, "no such module") for path in paths if not _is_installed(path))]


@functools.cache  # looking for a module takes up to a millisecond, and every spec asks for those of the site
def _is_installed(path: str) -> bool:
    try:
        return all(find_spec(module) for module in (path.rpartition(".")[0], *NEEDS.get(path, ())))
    except Exception:  # noqa: BLE001 - a parent package is missing, or fails when it is imported
        return False


def _unknown(path: str, found: str) -> InputError:
    return InputError(
        f"notifier {path} cannot be imported",
        found=found,
        expected="a class derived from airflow.sdk.BaseNotifier",
        remedy="Install its provider for every Airflow process, or correct the path. Until then it is not called.",
    )
