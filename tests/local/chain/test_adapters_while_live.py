"""LoRA adapters of a live model through Airflow: added, replaced, refused, removed and rolled back, without a release."""

import json
from concurrent.futures import wait

import openai
import pytest
import yaml

from tests.local.chain import adapted_model
from tests.local.chain.adapted_model import NAME
from tests.local.chain.own_stack import SPECS
from tests.support import plain_http
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


@pytest.fixture
def release(chain, gated, fleet_release):
    """The model's release, which is live for as long as the test; the fleet's goes on beside it."""
    assert gated.view.run.state == "success", chain.said(gated.view)
    try:
        yield chain.live(NAME)
    finally:
        wait([fleet_release])  # tests after this one compare all that is stored
    for kind in ("Deployment", "Service"):
        for found in chain.cluster.find(kind, {"slipway.dev/model": NAME}):
            chain.cluster.delete(kind, found["metadata"]["name"])


def adapter(revision, answer, match="exact", name="polite"):
    smoke = [{"prompt": QUESTION, "answer": answer, "match": match}]
    return {"name": name, "repo": adapted_model.REPO, "revision": revision, "smoke": smoke}


def client_of(chain):
    address = chain.address(NAME)
    return plain_http.openai_client(f"http://{address.host}:{address.ports['http']}/v1")


def answer(chain, model):
    """Asked often enough that each pod is asked; there is one answer."""
    messages, found = [{"role": "user", "content": QUESTION}], set()
    for _ in range(6):
        with client_of(chain) as client:
            made = client.chat.completions.create(model=model, messages=messages, temperature=0)
        found.add(made.choices[0].message.content)
    (only,) = found
    return only


def listed(chain):
    with client_of(chain) as client:
        return sorted(model.id for model in client.models.list().data)


def test_adapters_come_and_go_while_the_model_is_live(chain, release):
    file, pods = SPECS / f"{NAME}.yaml", chain.cluster.endpoints(NAME)
    brief, polite = f"{NAME}:brief", f"{NAME}:polite"
    assert listed(chain) == [NAME]

    def run(*adapters):
        """Have the spec name these adapters, and bring them in."""
        file.write_text(yaml.safe_dump({**adapted_model.document(), "adapters": list(adapters)}, sort_keys=False))
        return chain.follow(chain.trigger(f"adapters__{NAME}"))

    # two are added
    other = adapter("v1", ANSWER, name="brief")
    view = run(other, adapter("v1", ANSWER))
    assert view.run.state == "success", chain.said(view)
    assert listed(chain) == [NAME, brief, polite]
    assert [answer(chain, name) for name in (brief, polite)] == [ANSWER, ANSWER]

    # refused: it does not answer its own question
    view = run(other, adapter("odd", ANSWER))
    assert (view.run.state, view.results["load-adapters"].data["verdict"]) == ("failed", "failed")
    assert (listed(chain), answer(chain, polite)) == ([NAME, brief, polite], ANSWER)

    # one is removed, one is replaced, and the model itself notices nothing
    view = run(adapter("odd", ".", "regex"))
    assert view.run.state == "success", chain.said(view)
    assert listed(chain) == [NAME, polite]
    assert answer(chain, polite) != answer(chain, NAME) == ANSWER
    with pytest.raises(openai.NotFoundError, match=f"there is {NAME}"):
        answer(chain, brief)

    # a pod that starts has it
    assert (chain.live(NAME), chain.cluster.endpoints(NAME)) == (release, pods)
    gone = min(pods)
    chain.core.delete_namespaced_pod(gone, chain.site.kubernetes.serving_namespace)
    until(
        lambda: gone not in chain.cluster.endpoints(NAME) and len(chain.cluster.endpoints(NAME)) == len(pods),
        timeout_s=900,
    )
    assert (listed(chain), answer(chain, polite) != ANSWER) == ([NAME, polite], True)

    # rolled back, by the command
    done = chain.slipway("adapters", NAME, "--previous", "--reason", "it is odd")
    assert (done.returncode, "serves adapters: brief " in done.stdout) == (0, True), done.stdout + done.stderr
    assert [answer(chain, name) for name in (brief, polite)] == [ANSWER, ANSWER]
    status = json.loads(chain.slipway("status", NAME, "--json").stdout)["models"][0]
    assert [(each["name"], each["revision"], each["listed"]) for each in status["adapters"]] == [
        ("brief", "v1", True),
        ("polite", "v1", True),
    ]
    assert chain.live(NAME) == release
