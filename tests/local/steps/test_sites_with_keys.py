"""A site with API keys, from its setting to its clients: OpenAI's own one asks, and keys are replaced under load."""

import copy
import re
import time

import openai
import pytest
import yaml

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.serving.rendered.front import STATS_PORT
from tests.local.serving.openai_server import KeptClient
from tests.local.steps.step_pods import LIGHT_GATE, ByHand
from tests.support import plain_http
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1800)
NAME = "locked"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


class KeyedSite:
    """The stack's site with authentication, and what its people do: `slipway`, and clients of the live model."""

    def __init__(self, chain, folder):
        document = yaml.safe_load(chain.site_file.read_text())
        document["serving"] |= {"authentication": {}}
        document["telemetry"] = {"metrics": True}
        file = folder / "site.yaml"
        file.write_text(yaml.safe_dump(document))
        self.chain = copy.copy(chain)
        self.chain.site = read_contract(Site, document, str(file))
        self.chain.environment = {**chain.environment, "SLIPWAY_SITE": str(file)}
        self.revoked = ""

    def slipway(self, *arguments):
        """What the command prints."""
        done = self.chain.slipway(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def client(self, key):
        address = self.chain.address(NAME)
        url = f"http://{address.host}:{address.ports['http']}/v1"
        return plain_http.openai_client(url, key)

    def ask(self, client):
        answer = client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=20, temperature=0)
        return answer.choices[0].message.content

    def is_refused(self, key):
        with self.client(key) as client:
            try:
                client.models.list()
            except openai.AuthenticationError:
                return True
        return False

    def await_known(self, key):
        """Wait until every worker of the front takes the key: one that has read the file in this second reads it in
        the next one."""
        until(lambda: not self.is_refused(key))
        time.sleep(2)


@pytest.fixture(scope="module")
def keyed(chain, tmp_path_factory):
    if chain.stack is None:
        pytest.skip("changes the site of its own stack alone")
    site = KeyedSite(chain, tmp_path_factory.mktemp("keyed"))
    site.slipway("setup")
    site.slipway("key", "create", "slipway", "--for-steps")
    released = ByHand(site.chain, NAME, gate=LIGHT_GATE)
    released.reach("promote")  # its steps ask the candidate with their own key
    released.make("promote")
    yield site
    released.remove()
    done = chain.slipway("setup")
    assert done.returncode == 0, done.stderr


def test_a_person_makes_a_key_asks_with_it_sees_its_use_and_revokes_it(keyed):
    key = keyed.slipway("key", "create", "alice", "--days", "1")
    assert keyed.is_refused("sk-none")
    keyed.await_known(key)

    with keyed.client(key) as client:
        assert keyed.ask(client) == "The capital of France is Paris."
    assert re.search(r"client=\"alice\"[^}]*} [1-9]", used(keyed))

    keyed.slipway("key", "revoke", "alice")
    until(lambda: keyed.is_refused(key))


def test_a_key_is_replaced_under_load_and_no_request_fails(keyed):
    sent = {"key": keyed.slipway("key", "create", "bob")}
    first, (row,) = sent["key"], [line for line in keyed.slipway("key", "list").splitlines() if "bob" in line]
    keyed.await_known(first)
    with keyed.client(first) as kept:

        def ask():
            return keyed.ask(kept.with_options(api_key=sent["key"]))

        with KeptClient(ask) as one, KeptClient(ask) as two:

            def go_on():
                before = len(one.answers), len(two.answers)
                until(
                    lambda: len(one.answers) > before[0] + 2 and len(two.answers) > before[1] + 2,
                    said=lambda: f"{one.failures} {two.failures}",
                )

            second = keyed.slipway("key", "create", "bob")
            keyed.await_known(second)
            sent["key"] = second
            go_on()
            keyed.slipway("key", "revoke", "bob", "--id", re.search(r"\b[0-9a-f]{8}\b", row)[0])
            until(lambda: keyed.is_refused(first))
            go_on()

    print(f"{len(one.answers) + len(two.answers)} answers")
    assert (one.failures, two.failures) == ([], [])


def used(keyed):
    """The requests of each key, as the pod's front counts them."""
    (pod,) = keyed.chain.cluster.find("Pod", {"slipway.dev/model": NAME})
    return plain_http.get(f"http://{pod['status']['podIP']}:{STATS_PORT}/metrics").text
