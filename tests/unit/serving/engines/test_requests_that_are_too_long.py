"""What a model says of a request that is too long is what OpenAI's routes know it by: Triton passes on a text alone."""

import pytest
from generation.requests.question import Question, RefusedError, check, job
from generation.settings import Limits

from slipway.tasks.serving.openai_api.http.errors import refusal

LIMITS = Limits(max_input_tokens=8, max_sequence_tokens=10, default_max_tokens=4)


@pytest.mark.parametrize(
    ("question", "tokens", "param"),
    [
        (Question("x" * 200), 3, "prompt"),
        (Question("", messages=({"role": "user", "content": "x", "reasoning_content": "y" * 200},)), 3, "prompt"),
        (Question("x"), 9, "prompt"),
        (Question("x", max_tokens=100), 3, "length"),
    ],
)
def test_a_refusal_for_length_has_openai_s_code_and_the_clients_parameter(question, tokens, param):
    with pytest.raises(RefusedError) as refused:
        _ = check(question, LIMITS, longest_token=16) or job(question, [1] * tokens, LIMITS)
    error = refusal(str(refused.value), prompt="prompt", length="length", longest=10)

    assert (error.param, error.code) == (param, "context_length_exceeded")
    assert error.message == f"This model's maximum context length is 10 tokens: {refused.value}"
    assert "text_input" not in error.message


def test_other_refusals_have_neither():
    error = refusal(
        "the prompt is empty; expected a question. Send some text.", prompt="prompt", length="length", longest=10
    )

    assert (error.param, error.code) == (None, None)
