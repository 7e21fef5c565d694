"""Options of `slipway ask` that shape an answer, and refusals of those that a model does not support."""

import io
import json
import sys

import pytest

from slipway.cli.ask.generate import Piece
from slipway.cli.ask.printed_answer import PrintedAnswer
from slipway.cli.ask.prompt_inputs import Sampling, prompt_inputs
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.wire.prompt_model import ModelInputs
from tests.fakes.servers.triton_http import INPUTS, TritonHttpServer

OURS = (*INPUTS, "messages", "stop_words", "chat_template_kwargs")
VLLM = ("text_input", "stream", "sampling_parameters", "exclude_input_in_output", "return_num_output_tokens")
MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]

SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.fixture
def triton():
    with TritonHttpServer(inputs=OURS, answers=[{"text_output": "Yes.", "finish_reason": "stop"}]) as server:
        yield server


@pytest.fixture
def ask(slipway, triton):
    def run(*arguments):
        return slipway("ask", "demo", *arguments, "--host", f"127.0.0.1:{triton.port}")

    return run


def test_options_become_the_inputs_of_the_model(ask, triton):
    triton.inputs += ("top_p", "lora_name")
    options = ["--temperature", "0.7", "--seed", "3", "--top-p", "0.9", "--stop", "\n", "--stop", "END", "--lora", "fr"]

    assert ask("Who?", "--max-tokens", "9", *options)[0] == 0

    assert triton.asked == [
        {
            "text_input": "Who?",
            "stream": True,
            "max_tokens": 9,
            "temperature": 0.7,
            "seed": 3,
            "top_p": 0.9,
            "stop_words": ["\n", "END"],
            "lora_name": "fr",
        }
    ]


def test_every_option_that_a_model_does_not_support_is_refused_by_name_before_anything_is_sent(ask, triton):
    triton.inputs = INPUTS

    code, printed = ask("Who?", "--top-p", "0.9", "--stop", "END", "--lora", "fr", "--chat-template-kwargs", '{"a": 1}')

    assert code == 65
    assert "demo does not support --top-p, --stop, --chat-template-kwargs, --lora" in printed
    assert "engine.lora" in printed
    assert triton.asked == []


def test_a_system_prompt_makes_a_conversation_of_two_messages(ask, triton):
    assert ask("Who?", "--system", "Be brief.")[0] == 0

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert triton.asked[0]["text_input"] == ""
    assert json.loads(triton.asked[0]["messages"]) == messages


def test_messages_of_a_file_come_before_the_prompt(ask, triton, tmp_path):
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(MESSAGES))

    assert ask("Who?", "--messages", str(file))[0] == 0
    assert json.loads(triton.asked[0]["messages"]) == [*MESSAGES, {"role": "user", "content": "Who?"}]

    assert ask("--messages", str(file))[0] == 0
    assert json.loads(triton.asked[1]["messages"]) == MESSAGES


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not a list of messages"),
        ('{"role": "user"}', "is not a list of messages"),
        ('[{"role": "user", "content": "Hi"}, {"role": "user"}]', "message 2 is wrong"),
    ],
)
def test_a_file_that_holds_no_messages_says_what_is_wrong(ask, triton, tmp_path, text, what):
    file = tmp_path / "messages.json"
    file.write_text(text)

    code, printed = ask("--messages", str(file))

    assert code == 65
    assert what in printed
    assert triton.asked == []


def test_a_missing_file_of_messages_is_a_wrong_input(ask, tmp_path):
    code, printed = ask("--messages", str(tmp_path / "none.json"))

    assert code == 65
    assert "cannot be read: No such file" in printed


def test_a_prompt_may_come_from_stdin(ask, triton, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Who?\n"))

    assert ask()[0] == 0
    assert triton.asked[0]["text_input"] == "Who?"


def test_an_empty_stdin_is_not_a_prompt(ask, triton, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))

    code, printed = ask()

    assert code == 65
    assert "stdin is empty and not a terminal" in printed
    assert triton.asked == []


def test_a_model_without_messages_refuses_a_system_prompt(ask, triton):
    triton.inputs = INPUTS

    code, printed = ask("Who?", "--system", "Be brief.")

    assert code == 65
    assert "demo takes no messages" in printed
    assert triton.asked == []


def test_a_pipe_gets_the_answer_and_no_statistics(ask):
    assert ask("Who?") == (0, "Yes.\n")


def test_vllm_gets_its_own_sampling_parameters():
    sampling = Sampling(8, 0.5, seed=1, top_p=0.9, stop=("END",), lora="fr")

    body = prompt_inputs("demo", "Who?", sampling, ModelInputs(frozenset(VLLM)))
    inputs = dict(body.inputs)

    parameters = json.loads(inputs.pop("sampling_parameters"))
    assert parameters == {
        "max_tokens": 8,
        "temperature": 0.5,
        "seed": 1,
        "top_p": 0.9,
        "stop": ["END"],
        "lora_name": "fr",
    }
    assert inputs == {
        "text_input": "Who?",
        "stream": True,
        "exclude_input_in_output": True,
        "return_num_output_tokens": True,
    }


def test_the_model_that_renders_prompts_of_vllm_gets_what_the_template_reads():
    known = ModelInputs(frozenset(VLLM), "demo_prompt")
    body = prompt_inputs("demo", [SYSTEM], Sampling(8, chat_template_kwargs={"a": 1}), known)

    assert json.loads(body.to_render["messages"]) == [SYSTEM]
    assert json.loads(body.to_render["chat_template_kwargs"]) == {"a": 1}
    assert (body.to_render["text_input"], body.to_render["max_tokens"]) == ("", 8)
    assert json.loads(body.inputs["sampling_parameters"]) == {"max_tokens": 8, "temperature": 0.0}


def test_vllm_applies_no_template_whose_arguments_could_be_set():
    with pytest.raises(InputError) as refused:
        prompt_inputs("demo", "Who?", Sampling(8, chat_template_kwargs={"a": 1}), ModelInputs(frozenset(VLLM)))

    assert refused.value.what == "demo does not support --chat-template-kwargs"


@pytest.mark.parametrize(
    ("pieces", "measured"),
    [
        (
            [Piece("a", 10.5, ""), Piece("b", 11.0, ""), Piece("c", 12.5, "stop", tokens=5)],
            "5 tokens in 2.50 s, TTFT 0.500 s, 2.0 tokens/s, ended by stop",
        ),
        (
            [Piece("a", 10.5, "", tokens=2), Piece("b", 11.5, "length", tokens=3)],
            "5 tokens in 1.50 s, TTFT 0.500 s, 4.0 tokens/s, ended by length",
        ),
        ([Piece("a", 10.5, ""), Piece("b", 11.0, "")], "2 pieces in 1.00 s, TTFT 0.500 s, ended by the server"),
        ([Piece("all", 11.0, "stop", tokens=9)], "9 tokens in 1.00 s, TTFT 1.000 s, ended by stop"),
    ],
)
def test_the_rate_leaves_out_the_first_token_and_the_wait_for_it(pieces, measured):
    answer = PrintedAnswer()

    answer.print(pieces, stream=False)

    assert answer.measured(sent_at_s=10.0) == measured
