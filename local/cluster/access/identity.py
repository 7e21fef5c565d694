"""Senders of requests, named as Kubernetes names users and service accounts."""

from dataclasses import dataclass

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclass(frozen=True)
class User:
    """A name and the groups that roles may be bound to."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""


ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def service_account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def service_account(namespace: str, name: str, uid: str) -> User:
    """The user that a service account's token identifies."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(service_account_name(namespace, name), groups, uid)
