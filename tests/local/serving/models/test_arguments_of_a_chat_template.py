"""Arguments of the chat template, from a request's tensor to the template, in a real Triton.

The template of `five` takes no question without the mood that its release sets.
"""

import json

import pytest

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


def test_the_releases_arguments_and_a_requests_own_reach_the_template(five):
    status, body = five.generate(text_input=QUESTION)
    refused, problem = five.generate(text_input=QUESTION, chat_template_kwargs='{"mood": "bad"}')

    assert (status, body["text_output"]) == (200, ANSWER)
    assert (refused, "the mood is bad" in problem["error"]) == (400, True)


@pytest.mark.parametrize("model", ["demo", "demo_preprocessing"])
def test_every_model_on_the_way_takes_them(five, model):
    inputs = {tensor["name"] for tensor in json.loads(five._exchange("GET", f"/v2/models/{model}")[1])["inputs"]}

    assert "chat_template_kwargs" in inputs


def test_openvino_takes_arguments_and_refuses_what_are_none(server):
    for model in ("demo", "demo_whole_answer"):
        status, body = server.generate(model=model, text_input=QUESTION, chat_template_kwargs='{"mood": "bad"}')
        refused, problem = server.generate(model=model, text_input=QUESTION, chat_template_kwargs="[1]")

        assert (status, body["text_output"]) == (200, ANSWER)
        assert "expected a JSON object" in problem["error"]
        assert refused in {400, 500}, "the whole-answer model passes on an error without its code"
