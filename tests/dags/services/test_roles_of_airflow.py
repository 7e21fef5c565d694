"""Airflow's own roles, as its auth manager judges them: what the users of the manifests and of the compose file may do."""

import re

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

from tests.support.paths import REPOSITORY

USERS = re.compile(r'SIMPLE_AUTH_MANAGER_USERS"?[:,] (?:value: )?"?([a-z:,]+)')
DAG = DagDetails(id="release__demo")


@pytest.fixture
def may():
    """Whether a user with a role may trigger runs, mark tasks, and read connections."""
    manager = SimpleAuthManager()

    def judged(role):
        user = SimpleAuthManagerUser(username="ann", role=role)
        return (
            manager.is_authorized_dag(method="POST", user=user, access_entity=DagAccessEntity.RUN, details=DAG),
            manager.is_authorized_dag(
                method="PUT", user=user, access_entity=DagAccessEntity.TASK_INSTANCE, details=DAG
            ),
            manager.is_authorized_connection(method="GET", user=user),
        )

    return judged


@pytest.mark.parametrize(
    ("role", "expected"),
    [("viewer", (False, False, False)), ("user", (True, True, False)), ("op", (True, True, True))],
)
def test_a_viewer_changes_nothing_and_a_user_reads_no_connection(may, role, expected):
    assert may(role) == expected


@pytest.mark.parametrize(("team", "expected"), [("search", True), ("support", False), (None, True)])
@pytest.mark.parametrize(
    "entity", [DagAccessEntity.RUN, DagAccessEntity.TASK_INSTANCE, DagAccessEntity.HITL_DETAIL, None]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_tenant_reaches_the_models_of_its_own_team_alone(team, expected, entity, method):
    """A DAG has the team of its bundle, where Airflow runs with `core.multi_team`; one without a team is everybody's."""
    ann = SimpleAuthManagerUser(username="ann", role="user", teams=["search"])
    details = DagDetails(id="release__demo", team_name=team)
    may = SimpleAuthManager().is_authorized_dag(method=method, user=ann, access_entity=entity, details=details)

    assert may == expected


@pytest.mark.parametrize("file", ["docker-compose.yaml", "local/kind/airflow.values.yaml"])
def test_ci_may_trigger_and_reads_no_connection(file):
    (users,) = USERS.findall((REPOSITORY / file).read_text())

    assert dict(each.split(":") for each in users.split(",")) == {"admin": "admin", "ci": "user"}
