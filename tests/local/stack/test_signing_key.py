"""A new stack signs its releases with a key of its own; one that was made before that goes on unsigned."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from local.settings import Settings
from local.stack import Stack
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.fit.site_objects import signing_secret
from slipway.tasks.contracts.site.site import Site
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "stack"


def test_a_new_stack_keeps_its_key_to_itself_and_its_site_names_the_public_half(folder):
    stack = Stack(folder)
    site = read_contract(Site, stack.site(), "site.yaml")

    assert Stack(folder).settings == stack.settings
    assert (folder / "stack.json").stat().st_mode & 0o077 == 0
    assert site.signing.public_keys == (stack.settings.public_key,)
    assert "PRIVATE" not in json.dumps(stack.site()) + repr(stack.settings)
    (secret,) = signing_secret(site, stack.settings.signing_key)
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == ("slipway", "slipway-signing")
    assert secret["stringData"] == {"private.pem": stack.settings.signing_key}


def test_a_stack_of_an_older_version_still_starts_its_unsigned_releases(folder):
    Stack(folder)
    older = json.loads((folder / "stack.json").read_text())
    del older["signing_key"]
    (folder / "stack.json").write_text(json.dumps(older))

    stack = Stack(folder)

    assert read_contract(Site, stack.site(), "site.yaml").signing is None
    stack.settings.write(folder)
    assert Settings.of(folder) == stack.settings


def test_a_stack_of_an_older_version_gets_the_port_that_it_lacks_once(folder):
    Stack(folder)
    older = json.loads((folder / "stack.json").read_text())
    del older["ports"]["execution_api"]
    (folder / "stack.json").write_text(json.dumps(older))

    ports = Stack(folder).settings.ports

    assert ports == Stack(folder).settings.ports
    assert {name: ports[name] for name in older["ports"]} == older["ports"]
    assert ports["execution_api"] not in older["ports"].values()


@pytest.mark.parametrize("absent", ["file", "port"])
def test_commands_that_begin_at_the_same_time_choose_the_same_settings(tmp_path, absent):
    both = Barrier(2)

    def chosen(folder):
        both.wait(PATIENCE_S)
        return Settings.of(folder)

    with ThreadPoolExecutor(2) as threads:
        for number in range(40):
            folder = tmp_path / str(number)
            if absent == "port":
                settings = Settings.of(folder)
                del settings.ports["execution_api"]
                settings.write(folder)

            one, other = threads.map(chosen, [folder, folder])

            assert one == other == Settings.of(folder)
