"""Releases of the vllm kind from plan to promotion through Airflow, a canary and a roll back, with vLLM itself."""

import json
from functools import partial

import openai
import pytest

from demo.traffic import Routed, Traffic
from tests.local.chain.own_stack import own_chain
from tests.local.chain.whole_chain import MODEL
from tests.vllm import laptop
from tests.vllm.conftest import ON_CPU

pytestmark = pytest.mark.timeout(6 * laptop.READY_S)

RUN_TIMEOUT_S = 2 * laptop.READY_S  # a release that goes live or is refused starts vLLM once, a canary's at most twice

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "sure": {"type": "boolean"}},
    "required": ["city", "sure"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": CITY}}
CHOICE = {"type": "function", "function": {"name": "look_up"}}


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    environment = {name: str(value) for name, value in ON_CPU.items()}
    with own_chain(
        tmp_path_factory.mktemp("chain") / "scratch", *laptop.options(tmp_path_factory.mktemp("stack"), environment)
    ) as made:
        made.run_timeout_s = RUN_TIMEOUT_S
        yield made


@pytest.fixture(scope="module")
def promoted(chain):
    """The first revision went live."""
    view = chain.release("v1")
    assert view.run.state == "success", {name: result.summary for name, result in view.results.items()}
    return chain.live()


def routed(chain):
    """A client of the model at the Gateway."""
    host, port = chain.stack.serve_gateway()
    known_as = chain.site.serving.routes.host.format(name=MODEL)
    question = chain.spec.gate.smoke[0]
    return Traffic(MODEL, host, {"http": port}, question, kinds=[partial(Routed, known_as=known_as)], pause_s=0.2)


def test_a_promoted_release_answers_openais_client_at_its_service(chain, promoted):
    address = chain.address()
    with openai.OpenAI(
        base_url=f"http://{address.host}:{address.ports['http']}/v1", api_key="none", max_retries=0
    ) as client:
        ask = partial(
            client.chat.completions.create,
            model=MODEL,
            messages=[{"role": "user", "content": "What is the capital of France?"}],
        )
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True) if chunk.choices)
        (choice,) = ask(logprobs=True, top_logprobs=3).choices
        (call,) = ask(tools=[TOOL], tool_choice=CHOICE, temperature=1.0, seed=1).choices[0].message.tool_calls
        schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
        answer = ask(response_format=schema, temperature=1.0, seed=1).choices[0].message.content

    assert streamed == choice.message.content == "The capital of France is Paris."
    assert {len(token.top_logprobs) for token in choice.logprobs.content} == {3}
    for text in (call.function.arguments, answer):
        assert json.loads(text)["city"] in CITY["properties"]["city"]["enum"]


def test_a_damaged_revision_is_refused_and_no_request_fails(chain, promoted):
    with routed(chain) as traffic:
        view = chain.release("damaged")

    assert (view.run.state, view.results["gate"].data["verdict"]) == ("failed", "failed")
    assert (chain.live(), chain.candidate(), chain.deployments()) == (promoted, None, {promoted})
    assert (traffic.failures, traffic.requests > 0) == ([], True)


def test_a_canary_goes_live_and_is_rolled_back_and_no_request_fails(chain, promoted):
    with routed(chain) as traffic:
        view = chain.release("v2")
        second = chain.live()
        taken_back = chain.follow(chain.trigger(f"rollback__{MODEL}", reason="a test wants it back"))

    assert view.run.state == "success", {name: result.summary for name, result in view.results.items()}
    watched = chain.read(f"{view.results['gate'].data['evidence']}/canary.json")
    assert (watched["phase"], watched["looks"][-1]["percent"]) == ("passed", 50)
    assert (second != promoted, taken_back.run.state, chain.live()) == (True, "success", promoted)
    assert (traffic.failures, traffic.requests > 0) == ([], True)
