"""Where the command finds what it speaks with."""

import json
import stat
from pathlib import Path

import pytest

from local import client_file
from slipway.cli.settings import Settings
from slipway.tasks.contracts.errors import InputError


def test_an_option_comes_before_the_environment():
    settings = Settings.resolve({"SLIPWAY_AIRFLOW": "http://a", "SLIPWAY_SITE": "a.yaml"}, airflow="http://b")

    assert (settings.address, settings.site_file) == ("http://b", Path("a.yaml"))


ENVIRONMENT = {"SLIPWAY_AIRFLOW": "http://127.0.0.1:8080", "SLIPWAY_SITE": "/stack/site.yaml", "KUBECONFIG": "/stack/k"}


@pytest.fixture
def stack_file(tmp_path):
    """Where the stack in `tmp_path` describes itself to clients."""
    return tmp_path / client_file.NAME


def resolved(environment, stack_file):
    return Settings.resolve(environment, stack_file=stack_file)


def test_without_an_airflow_and_a_site_all_of_the_running_stack_is_used(stack_file):
    client_file.write_running(stack_file.parent, ENVIRONMENT)
    environment = {"KUBECONFIG": "/home/me/config"}

    settings = resolved(environment, stack_file)

    assert (settings.address, settings.site_file) == ("http://127.0.0.1:8080", Path("/stack/site.yaml"))
    assert settings.kubeconfig == Path("/stack/k")
    assert environment == ENVIRONMENT


@pytest.mark.parametrize("given", [{"SLIPWAY_AIRFLOW": "http://a"}, {"SLIPWAY_SITE": "a.yaml"}])
def test_nothing_of_the_laptops_stack_is_mixed_into_what_is_given(given, stack_file):
    client_file.write_running(stack_file.parent, ENVIRONMENT)
    environment = dict(given)

    resolved(environment, stack_file)

    assert environment == given


def test_a_stack_that_was_stopped_leaves_no_address_and_no_credential_behind(stack_file):
    client_file.write_running(stack_file.parent, {**ENVIRONMENT, "SLIPWAY_AIRFLOW_PASSWORD": "planted"})
    client_file.write_stopped(stack_file.parent)
    environment = {}

    with pytest.raises(InputError) as caught:
        resolved(environment, stack_file).airflow()

    assert "the stack of this checkout was stopped" in caught.value.what
    assert "`make up`" in caught.value.remedy
    assert environment == {}
    assert "planted" not in stack_file.read_text()


def test_a_stack_that_was_never_started_is_named_and_stays_so_when_it_is_stopped(stack_file):
    client_file.write_stopped(stack_file.parent)

    with pytest.raises(InputError) as caught:
        resolved({}, stack_file).site()

    assert "the stack of this checkout was never started" in caught.value.what
    assert not stack_file.exists()


def test_only_its_owner_can_read_what_the_stack_tells_its_clients(stack_file):
    client_file.write_running(stack_file.parent, ENVIRONMENT)

    assert stat.S_IMODE(stack_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["{", "[]", '{"state": "new"}', json.dumps({"state": "running"}), '{"state": []}'])
def test_a_damaged_description_of_the_stack_is_a_wrong_input(stack_file, text):
    stack_file.write_text(text)

    with pytest.raises(InputError) as caught:
        resolved({}, stack_file)

    assert caught.value.what == f"{stack_file} does not describe a stack"


@pytest.mark.parametrize(("part", "variable"), [("airflow", "SLIPWAY_AIRFLOW"), ("site", "SLIPWAY_SITE")])
def test_a_missing_setting_is_named_with_the_variable_to_set(part, variable):
    with pytest.raises(InputError) as caught:
        getattr(Settings(), part)()

    assert f"{variable} is not set" in caught.value.what
    assert caught.value.remedy.startswith(f"Set {variable}")


def test_a_text_that_is_not_an_address_is_a_wrong_input(slipway, monkeypatch):
    monkeypatch.setenv("SLIPWAY_AIRFLOW", "airflow.example")

    code, printed = slipway("release", "demo")

    assert code == 65
    assert "SLIPWAY_AIRFLOW is not an address: found 'airflow.example'" in printed
