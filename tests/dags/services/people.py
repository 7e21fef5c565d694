"""Who may do what in the Airflow of these tests: an auth manager with rights per DAG, as a team's Airflow has."""

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

VIEWER, OPERATOR, ADMIN = "viv", "olga", "ada"
ROLES = {VIEWER: "viewer", OPERATOR: "op", ADMIN: "admin"}
HIDDEN = "embargoed"
"""A model that only the administrator may read."""


class RightsPerModel(SimpleAuthManager):
    """Airflow's simple auth manager, except that only an administrator may see the DAGs of `HIDDEN`."""

    def is_authorized_dag(self, *, method, user, access_entity=None, details=None):
        """Whether the user may do that with the DAG; with any DAG, if no details are given."""
        if details is not None and (details.id or "").endswith(f"__{HIDDEN}") and user.role != ROLES[ADMIN]:
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
