"""Credentials for Airflow."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Login:
    """A token, or a user and password to get one with. Secrets are never printed."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
