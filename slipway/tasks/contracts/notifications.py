"""The notifiers of a site and of a spec. Pure: slipway.airflow.notify calls them."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.redaction import TOKEN
from slipway.tasks.contracts.spec_fields import OptionNumber

Event = Literal["promoted", "refused", "rolled-back", "waiting-for-approval", "drill-failed"]
EVENTS: tuple[Event, ...] = get_args(Event)
MAX_NOTIFIERS = 20
MAX_ARGUMENTS = 30
MAX_LIST = 50

PLACEHOLDERS = frozenset(
    {
        *("event", "model", "release", "title", "run_url", "report_url", "approval_url"),
        *("text", "slack", "markdown", "html"),
    }
)
"""What an argument may hold in braces: facts, and the whole message as each destination reads it
(docs/notifications.md)."""
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
SECRET_NAME = re.compile(r"(?i)token|password|secret|credential|api_?key|auth")
SECRET_TEXT = re.compile(rf"{TOKEN.pattern}|\bxox[a-z]-|hooks\.slack\.com/|discord(?:app)?\.com/api/webhooks/")
CONNECTION = "conn_id"
"""Ends the name of an argument that names one of Airflow's connections, which holds the secrets."""


def _is_filled_in(text: str) -> str:
    if unknown := sorted(set(PLACEHOLDER.findall(text)) - PLACEHOLDERS):
        raise ValueError(
            f"{{{unknown[0]}}} is not a placeholder: choose {', '.join(f'{{{name}}}' for name in sorted(PLACEHOLDERS))}"
        )
    if SECRET_TEXT.search(text):
        raise ValueError("this looks like a secret, which belongs in a connection of Airflow")
    return text


ImportPath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$", max_length=200)
]
"""`<module>.<class>`."""
ArgumentName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$", max_length=64)]
ArgumentText = Annotated[str, AfterValidator(_is_filled_in)]
Argument = (
    ArgumentText
    | bool
    | OptionNumber
    | Annotated[list[ArgumentText], Field(max_length=MAX_LIST)]
    | Annotated[dict[ArgumentName, ArgumentText], Field(max_length=MAX_LIST)]
)


class Notifier(UserDocument):
    """One notifier of Airflow, and what it is called for."""

    notifier: ImportPath = Field(
        description="import path of a class derived from airflow.sdk.BaseNotifier",
        examples=["airflow.providers.smtp.notifications.smtp.SmtpNotifier"],
    )
    arguments: dict[ArgumentName, Argument] = Field(
        default_factory=dict,
        max_length=MAX_ARGUMENTS,
        description="arguments of the class; {title}, {text} and others are filled in (docs/notifications.md). Secrets "
        "are in the Airflow connection that an argument names",
    )
    events: tuple[Event, ...] = Field(
        default=EVENTS, min_length=1, max_length=len(EVENTS), description="what it is called for; absent: everything"
    )

    @field_validator("arguments")
    @classmethod
    def _secrets_are_in_connections(cls, arguments: dict[str, Argument]) -> dict[str, Argument]:
        for name in _names(arguments):
            if SECRET_NAME.search(name) and not name.endswith(CONNECTION):
                raise ValueError(f"{name} holds a secret: put it in a connection of Airflow, and name that one")
        return arguments


def _names(arguments: dict[str, Argument]) -> Iterator[str]:
    for name, argument in arguments.items():
        yield name
        yield from argument if isinstance(argument, dict) else ()


class Notifications(UserDocument):
    """A site's notifiers for every model, and the notifiers that its specs may add."""

    send: tuple[Notifier, ...] = Field(default=(), max_length=MAX_NOTIFIERS, description="notifiers of every model")
    from_specs: dict[ImportPath, tuple[ArgumentName, ...]] = Field(
        default_factory=dict,
        max_length=MAX_NOTIFIERS,
        description="classes that notifications of a spec may name, each with the arguments that it may give; absent: "
        "none, since a class runs in Airflow's own processes",
    )

    def of(self, spec: tuple[Notifier, ...]) -> tuple[Notifier, ...]:
        """The notifiers of a model: the site's, and those of its spec that the site lets it name."""
        return (*self.send, *(each for each in spec if not self.refuses(each)))

    def refuses(self, notifier: Notifier) -> str:
        """What a notifier of a spec names and the site does not allow; empty: nothing."""
        allowed = self.from_specs.get(notifier.notifier)
        if allowed is None:
            return f"class {notifier.notifier}"
        return ", ".join(f"argument {name}" for name in sorted(set(notifier.arguments) - set(allowed)))
