"""Where the command finds what it speaks with."""

from pathlib import Path

import pytest

from cli.settings import Settings
from tasks.contracts.errors import InputError


def test_an_option_comes_before_the_environment():
    settings = Settings.resolve({"SLIPWAY_AIRFLOW": "http://a", "SLIPWAY_SITE": "a.yaml"}, airflow="http://b")

    assert (settings.address, settings.site_file) == ("http://b", Path("a.yaml"))


@pytest.mark.parametrize("given", [{"SLIPWAY_AIRFLOW": "http://a"}, {"SLIPWAY_SITE": "a.yaml"}])
def test_nothing_of_the_laptops_stack_is_mixed_into_what_is_given(given):
    environment = dict(given)

    Settings.resolve(environment)

    assert environment == given


def test_a_missing_airflow_is_named_with_the_variable_to_set():
    with pytest.raises(InputError, match="SLIPWAY_AIRFLOW is not set"):
        Settings().airflow()


def test_a_missing_site_is_named_with_the_variable_to_set():
    with pytest.raises(InputError, match="SLIPWAY_SITE is not set"):
        Settings().site()


def test_an_address_that_is_none_is_a_wrong_input(slipway, monkeypatch):
    monkeypatch.setenv("SLIPWAY_AIRFLOW", "airflow.example")

    code, printed = slipway("release", "demo")

    assert code == 65
    assert "SLIPWAY_AIRFLOW is 'airflow.example'" in printed
