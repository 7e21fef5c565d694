"""Arguments of the chat template, from a request's tensor to the template, in a real Triton."""

import json

import pytest

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
REFUSES = "{% if mood != 'fine' %}{{ raise_exception('the mood is ' ~ mood) }}{% endif %}"


@pytest.fixture(scope="module")
def moody(start_server, make_topology):
    """A trt-engine whose template takes no question without a mood, which the release sets."""
    repository = make_topology(chat_template_kwargs={"mood": "fine"})
    template = repository / "demo" / "1" / "engine" / "chat_template.jinja"
    template.write_text(REFUSES + template.read_text())
    server = start_server(repository)
    yield server
    server.end()


def test_the_releases_arguments_and_a_requests_own_reach_the_template(moody):
    status, body = moody.generate(text_input=QUESTION)
    refused, problem = moody.generate(text_input=QUESTION, chat_template_kwargs='{"mood": "bad"}')

    assert (status, body["text_output"]) == (200, ANSWER)
    assert (refused, "the mood is bad" in problem["error"]) == (400, True)


@pytest.mark.parametrize("model", ["demo", "demo_preprocessing"])
def test_every_model_on_the_way_takes_them(moody, model):
    inputs = {tensor["name"] for tensor in json.loads(moody._exchange("GET", f"/v2/models/{model}")[1])["inputs"]}

    assert "chat_template_kwargs" in inputs


def test_openvino_takes_arguments_and_refuses_what_are_none(server):
    for model in ("demo", "demo_whole_answer"):
        status, body = server.generate(model=model, text_input=QUESTION, chat_template_kwargs='{"mood": "bad"}')
        refused, problem = server.generate(model=model, text_input=QUESTION, chat_template_kwargs="[1]")

        assert (status, body["text_output"]) == (200, ANSWER)
        assert "expected a JSON object" in problem["error"]
        assert refused in {400, 500}, "the whole-answer model passes on an error without its code"
