"""A kubeconfig that the Kubernetes client cannot use is wrong input, and no error shows a token."""

import json

import pytest

from slipway.tasks.adapters.kube import kube
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.kubeconfig_errors import of_kubeconfig
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from tests.unit.cli.test_documents import SITE

CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "t0ken"}}],
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
}


def refused(file):
    with pytest.raises(InputError) as caught:
        Cluster.connect(Site.model_validate(SITE), kubeconfig=file)
    assert "t0ken" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "content",
    [
        b"users: [t0ken",
        b"\xff\xfe\x00t0ken",
        b"t0ken",
        b"[1, 2]",
        json.dumps(CONFIG | {"users": "t0ken"}).encode(),
        json.dumps(CONFIG | {"users": ["t0ken"]}).encode(),
        json.dumps(CONFIG | {"clusters": 7}).encode(),
        json.dumps(CONFIG | {"contexts": [{"name": "here", "context": "t0ken"}]}).encode(),
        json.dumps(CONFIG | {"clusters": [{"name": "c", "cluster": {"server": 7}}]}).encode(),
    ],
)
def test_a_damaged_kubeconfig_is_wrong_input(tmp_path, content):
    file = tmp_path / "config"
    file.write_bytes(content)

    error = refused(file)

    assert "kubeconfig" in str(error) or "cannot connect to the cluster" in error.what
    assert "KUBECONFIG" in error.remedy


def test_a_kubeconfig_that_is_a_folder_is_wrong_input(tmp_path):
    assert refused(tmp_path).found == f"a file that cannot be read: Is a directory ({tmp_path})"


def test_a_token_with_a_line_break_names_the_kubeconfig_only(tmp_path):
    file = tmp_path / "config"
    file.write_text(json.dumps(CONFIG | {"users": [{"name": "u", "user": {"token": "t0ken\nhalf"}}]}))

    assert refused(file).what == f"the token in {file} cannot be sent"


def test_an_error_of_the_client_itself_is_not_quoted(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("Invalid header value b'Bearer t0ken'")

    monkeypatch.setattr(kube.Cluster, "__init__", refuse)
    file = tmp_path / "config"
    file.write_text(json.dumps(CONFIG))

    assert refused(file).found == "a value that cannot be used"


def test_an_entry_that_is_absent_is_told_from_one_of_the_wrong_type():
    assert of_kubeconfig("config", KeyError("user")).found == "an entry that lacks a part"
    assert of_kubeconfig("config", AttributeError("x")).found == "an entry of the wrong type"
