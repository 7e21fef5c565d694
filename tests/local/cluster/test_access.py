"""Who may speak with the server."""

import stat

import pytest


@pytest.mark.parametrize("token", ["", "guess"])
def test_without_the_token_nothing_is_told(cluster, token):
    code, status = cluster.ask("/api/v1/secrets", token=token)

    assert (code, status["kind"], status["reason"]) == (401, "Status", "Unauthorized")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/version"])
def test_health_and_version_need_no_token(cluster, path):
    assert cluster.ask(path, token="")[0] == 200


def test_files_with_the_token_are_for_their_owner_alone(cluster):
    modes = [stat.S_IMODE(file.stat().st_mode) for file in (cluster.kubeconfig, cluster.state / "token")]

    assert modes == [0o600, 0o600]


def test_a_pod_speaks_with_the_api_unless_it_opts_out(space):
    code = (
        "from kubernetes import client, config; config.load_config(); "
        "print(len(client.CoreV1Api().list_node().items), 'node')"
    )
    space.run("speaks", code)
    space.run("silent", "import os; print(os.environ.get('KUBECONFIG'))", automountServiceAccountToken=False)

    space.finished("speaks")
    space.finished("silent")

    assert space.logs("speaks").strip() == "1 node"
    assert space.logs("silent").strip() == "None"
