"""A kubeconfig is read as the Kubernetes client for Python reads it."""

import base64
import json
import os
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes import client, config

from slipway.cli.kube.api import KubeApi
from slipway.cli.kube.kubeconfig import Access, access, files_of
from slipway.tasks.contracts.errors import InputError, UnavailableError

SERVER = "https://127.0.0.1:6443"


@pytest.fixture(scope="session")
def pair():
    """PEM of a certificate and of its key."""
    from datetime import UTC, datetime, timedelta

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(7).not_valid_before(datetime.now(UTC)).not_valid_after(datetime.now(UTC) + timedelta(1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8
    return pem, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@pytest.fixture
def kubeconfig(tmp_path):
    """Write a kubeconfig with one context, cluster and user."""

    def write(user, *, name="config", context="here", **cluster):
        document = {
            "current-context": context,
            "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        }
        file = tmp_path / name
        file.write_text(json.dumps(document))
        return file

    return write


@pytest.fixture
def plugin(tmp_path):
    """A credential plugin that prints its request's fields as a token."""

    def write(body, *, code=0):
        file = tmp_path / "plugin"
        file.write_text(f"#!/bin/sh\n{body}\nexit {code}\n")
        file.chmod(stat.S_IRWXU)
        return {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "interactiveMode": "Never"}

    return write


def as_the_client_reads(file):
    settings = client.Configuration()
    config.load_kube_config(config_file=str(file), client_configuration=settings)
    return settings


@pytest.mark.parametrize(
    "user", [{"token": "t0ken"}, {"username": "jane", "password": "pa:ss"}, {"tokenFile": "token"}, {}]
)
def test_a_person_logs_in_as_with_the_kubernetes_client(kubeconfig, tmp_path, user):
    (tmp_path / "token").write_text("from-file")
    file = kubeconfig(user)

    found, theirs = access([file], None), as_the_client_reads(file)

    assert found.server == theirs.host
    assert found.headers.get("Authorization") == theirs.auth_settings().get("BearerToken", {}).get("value")


def test_a_credential_plugin_is_given_its_request_and_its_token_is_taken(kubeconfig, plugin):
    token = """printf '{"status": {"token": "%s"}}' "$(echo "$KUBERNETES_EXEC_INFO$EXTRA" | tr -cd 'a-zA-Z0-9.')" """
    user = {"exec": plugin(token) | {"env": [{"name": "EXTRA", "value": "extra"}], "provideClusterInfo": True}}

    token = access([kubeconfig(user)], None).headers["Authorization"]

    assert "ExecCredential" in token
    assert "127.0.0.16443" in token
    assert token.endswith("extra")


def test_a_credential_plugin_may_give_a_certificate(kubeconfig, plugin, pair):
    status = {"clientCertificateData": pair[0].decode(), "clientKeyData": pair[1].decode()}
    user = {"exec": plugin(f"cat <<'END'\n{json.dumps({'status': status})}\nEND")}

    assert access([kubeconfig(user)], None).headers == {}


def test_a_plugin_that_is_not_installed_says_how_to_install_it(kubeconfig):
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "no-such-plugin",
        "installHint": "Get it at X",
    }

    with pytest.raises(InputError) as caught:
        access([kubeconfig({"exec": plugin})], None)

    assert caught.value.what == "the kubeconfig logs in with no-such-plugin, which is not installed"
    assert caught.value.remedy == "Get it at X"


@pytest.mark.parametrize(("body", "code"), [("echo no JSON", 0), ("echo {}", 0), ("echo []", 0), ("true", 3)])
def test_a_plugin_that_fails_may_be_tried_again(kubeconfig, plugin, body, code):
    with pytest.raises(UnavailableError) as caught:
        access([kubeconfig({"exec": plugin(body, code=code)})], None)

    assert caught.value.what.endswith("plugin failed")
    assert caught.value.remedy == "Log in again."


@pytest.mark.parametrize("as_files", [True, False])
def test_certificates_are_read_from_the_kubeconfig_or_from_files_beside_it(kubeconfig, tmp_path, pair, as_files):
    for name, pem in zip(("crt", "key"), pair, strict=True):
        (tmp_path / name).write_bytes(pem)
    data = [base64.b64encode(pem).decode() for pem in pair]
    if as_files:
        file = kubeconfig({"client-certificate": "crt", "client-key": "key"}, **{"certificate-authority": "crt"})
    else:
        user = {"client-certificate-data": data[0], "client-key-data": data[1]}
        file = kubeconfig(user, **{"certificate-authority-data": data[0]})

    tls = access([file], None).tls

    assert [dict(each[0] for each in one["subject"]) for one in tls.get_ca_certs()] == [{"commonName": "jane"}]
    assert tls.verify_mode is ssl.CERT_REQUIRED


def test_a_key_does_not_stay_in_a_temporary_file(kubeconfig, tmp_path, pair, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    data = [base64.b64encode(pem).decode() for pem in pair]

    access([kubeconfig({"client-certificate-data": data[0], "client-key-data": data[1]})], None)

    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_cluster_whose_certificate_is_not_to_be_checked(kubeconfig):
    assert access([kubeconfig({}, **{"insecure-skip-tls-verify": True})], None).tls.verify_mode is ssl.CERT_NONE


def test_of_several_files_the_first_that_has_an_entry_wins(kubeconfig, tmp_path):
    files = [
        tmp_path / "absent",
        kubeconfig({"token": "first"}, name="a", context="one"),
        kubeconfig({"token": "second"}, name="b", context="two", server="https://elsewhere"),
    ]
    theirs = as_the_client_reads(os.pathsep.join(map(str, files[1:])))

    assert access(files, None).headers["Authorization"] == theirs.api_key["BearerToken"] == "Bearer first"
    assert access(files, "two").server == SERVER


@pytest.mark.parametrize("file", ["no-file", None])
def test_without_a_kubeconfig_the_error_names_the_ways_out(tmp_path, file):
    with pytest.raises(InputError) as caught:
        access([tmp_path / "no-file"], file)

    assert caught.value.what == f"no kubeconfig: {tmp_path / 'no-file'} does not exist"
    assert caught.value.remedy == "Set KUBECONFIG, or give --host HOST:PORT."


def test_an_unknown_context_is_answered_with_the_known_ones(kubeconfig):
    with pytest.raises(InputError) as caught:
        access([kubeconfig({})], "there")

    assert caught.value.what.endswith("has no entry 'there' under contexts")
    assert caught.value.found == "here"


def test_a_login_that_kubernetes_removed_is_refused(kubeconfig):
    with pytest.raises(InputError) as caught:
        access([kubeconfig({"auth-provider": {"name": "gcp"}})], None)

    assert "auth-provider 'gcp'" in caught.value.what


def test_credentials_are_not_printed(kubeconfig):
    assert "t0ken" not in repr(access([kubeconfig({"token": "t0ken"})], None))


@pytest.mark.parametrize("user", [{"token": " t0ken\n"}, {"tokenFile": "token"}])
def test_whitespace_around_a_token_is_left_out(kubeconfig, tmp_path, user):
    (tmp_path / "token").write_text("t0ken\r\n")

    assert access([kubeconfig(user)], None).headers == {"Authorization": "Bearer t0ken"}


@pytest.mark.parametrize("token", ["t0ken\nhalf", "t0ken\thalf", "t0kén", ["t0ken"], {"t0ken": 1}])
def test_a_token_that_no_header_can_hold_is_refused_without_showing_it(kubeconfig, token):
    with pytest.raises(InputError) as caught:
        access([kubeconfig({"token": token})], None)

    assert caught.value.what.startswith("the token in the kubeconfig")
    assert "t0k" not in str(caught.value)


def test_a_token_of_a_file_names_the_file_only(kubeconfig, tmp_path):
    (tmp_path / "token").write_text("t0ken\nhalf")

    with pytest.raises(InputError) as caught:
        access([kubeconfig({"tokenFile": "token"})], None)

    assert caught.value.what == f"the token in {tmp_path / 'token'} cannot be sent"
    assert "t0ken" not in str(caught.value)


def test_a_header_that_the_client_refuses_is_not_quoted(monkeypatch):
    monkeypatch.setattr("http.client.HTTPConnection.connect", lambda _: None)
    monkeypatch.setattr("urllib3.connection.HTTPConnection.connect", lambda _: None)
    tls = ssl.create_default_context()
    api = KubeApi(Access("http://127.0.0.1:9", tls, {"Authorization": "Bearer t0ken\nhalf"}), "models")

    with pytest.raises(InputError) as caught:
        api.get("services/demo")

    assert caught.value.__cause__ is None
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize(("content", "found"), [(None, "No such file or directory"), (b"\xff\xfe", "no UTF-8 text")])
def test_a_token_file_that_cannot_be_read_is_wrong_input(kubeconfig, tmp_path, content, found):
    if content:
        (tmp_path / "token").write_bytes(content)

    with pytest.raises(InputError) as caught:
        access([kubeconfig({"tokenFile": "token"})], None)

    assert caught.value.what == f"{tmp_path / 'token'}, tokenFile in the kubeconfig, cannot be read"
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("change", "found", "expected"),
    [
        ({"users": "t0ken"}, "text", "a list"),
        ({"users": ["t0ken"]}, "text", "a mapping"),
        ({"users": [{"user": {}}]}, "nothing", "text"),
        ({"users": [{"name": "u", "user": "t0ken"}]}, "text", "a mapping"),
        ({"users": [{"name": "u", "user": {"tokenFile": 7}}]}, "a number", "text"),
        ({"users": [{"name": "u", "user": {"exec": "t0ken"}}]}, "text", "a mapping"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "c"}}}]}, "nothing", "text"),
        (
            {"users": [{"name": "u", "user": {"exec": {"apiVersion": "v", "command": "c", "env": ["t0ken"]}}}]},
            "text",
            "a mapping",
        ),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "nothing", "text"),
        ({"contexts": [{"name": "here", "context": {"cluster": ["c"]}}]}, "a list", "text"),
        ({"current-context": ["here"]}, "a list", "text"),
    ],
)
def test_an_entry_of_the_wrong_shape_is_wrong_input(kubeconfig, change, found, expected):
    file = kubeconfig({})
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    with pytest.raises(InputError) as caught:
        access([file], None)

    assert (caught.value.found, caught.value.expected) == (found, expected)
    assert caught.value.remedy == "Correct the kubeconfig."
    assert "t0ken" not in str(caught.value)


def test_kubeconfig_lists_several_files():
    assert [str(file) for file in files_of("/a:/b")] == ["/a", "/b"]
    assert [str(file) for file in files_of(None)] == ["~/.kube/config"]
