from slipway.tasks.adapters.triton.triton import Answer
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.steps.smoke_test import answered


class Adapters:
    """A server that says which adapter was asked."""

    def generate(self, model, request, timeout_s):
        return Answer(f"{model} as {request.lora}", "stop")


def test_how_an_answer_ended_is_recorded():
    row = answered(Adapters(), "demo", "smoke", SmokeQuestion(prompt="?", answer="a"))

    assert row.finish_reason == "stop"


def test_a_question_is_asked_of_the_adapter_that_it_names():
    adapted = SmokeQuestion(prompt="?", answer="demo as polite", lora="polite")
    plain = SmokeQuestion(prompt="?", answer="demo as None")

    assert answered(Adapters(), "demo", "smoke", adapted).ok
    assert answered(Adapters(), "demo", "smoke", plain).ok
