"""Who may use the server."""

import stat

import pytest


def test_a_token_that_is_not_valid_is_unauthorized(cluster):
    code, status = cluster.ask("/api/v1/secrets", token="guess")

    assert (code, status["kind"], status["reason"]) == (401, "Status", "Unauthorized")


def test_without_a_token_nothing_is_told(cluster):
    code, status = cluster.ask("/api/v1/secrets", token="")

    assert (code, status["kind"], status["reason"]) == (403, "Status", "Forbidden")
    assert status["message"] == (
        'secrets is forbidden: User "system:anonymous" cannot list resource "secrets" in API group "" '
        "at the cluster scope"
    )


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/version"])
def test_health_and_version_need_no_token(cluster, path):
    assert cluster.ask(path, token="")[0] == 200


def test_files_with_the_token_are_for_their_owner_alone(cluster):
    modes = [stat.S_IMODE(file.stat().st_mode) for file in (cluster.kubeconfig, cluster.state / "token")]

    assert modes == [0o600, 0o600]


def test_a_pod_has_the_token_of_its_own_service_account_unless_it_opts_out(space):
    code = (
        "import json; from kubernetes import client, config; config.load_config()\n"
        "try: client.CoreV1Api().list_secret_for_all_namespaces()\n"
        "except client.ApiException as refused: print(json.loads(refused.body)['message'])"
    )
    space.core.create_namespaced_service_account(space.name, {"metadata": {"name": "reader"}})
    space.run("speaks", code, serviceAccountName="reader")
    space.run("silent", "import os; print(os.environ.get('KUBECONFIG'))", automountServiceAccountToken=False)

    space.finished("speaks")
    space.finished("silent")

    assert f'User "system:serviceaccount:{space.name}:reader" cannot list' in space.logs("speaks")
    assert space.logs("silent").strip() == "None"


def test_a_service_account_decides_for_pods_that_do_not(space):
    body = {"metadata": {"name": "quiet"}, "automountServiceAccountToken": False}
    space.core.create_namespaced_service_account(space.name, body)
    code = "import os; print(os.environ.get('KUBECONFIG'))"
    space.run("silent", code, serviceAccountName="quiet")

    space.finished("silent")

    assert space.logs("silent").strip() == "None"


def test_the_mounted_token_is_for_its_owner_alone(space):
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    code = "import os, sys; print(*(oct(os.stat(path).st_mode & 0o777) for path in sys.argv[1:]))"
    arguments = [f"{where}/{name}" for name in ("token", "ca.crt", "namespace")]

    space.run("looks", code, container={"args": arguments})
    space.finished("looks")

    assert space.logs("looks").split() == ["0o600"] * 3


def test_the_token_of_a_pod_ends_with_the_pod(space, cluster, until):
    space.run("speaks", "import os; print(open(os.path.dirname(os.environ['KUBECONFIG']) + '/token').read())")
    space.finished("speaks")
    token = space.logs("speaks").strip()
    before = cluster.ask("/api", token=token)[0]

    space.core.delete_namespaced_pod("speaks", space.name)
    space.gone("speaks")

    assert (before, cluster.ask("/api", token=token)[0]) == (200, 401)
