"""The routes over a Triton that the test plays: documents, events, and errors before and in the middle of an answer."""

import asyncio
import gzip
import io
import json
import logging
import tracemalloc
import zlib
from math import nan

import pytest
from aiohttp.test_utils import TestClient, TestServer

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.serving.openai_api import sending
from slipway.tasks.serving.openai_api.answers.openai import Answer, ChatForm, Piece
from slipway.tasks.serving.openai_api.application import BODY_BYTES, Routes
from slipway.tasks.serving.openai_api.http.bodies import UNPACKED_BYTES
from tests.unit.openai_api.models import OURS, PROMPT_MODEL, VLLM, VLLM_OUTPUTS, config_of

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
END = {"text_output": "!", "finish_reason": "stop", "prompt_tokens": 4, "completion_tokens": 3}
SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HELLO = [[{"text_output": "Hel", "finish_reason": ""}], [{"text_output": "lo", "finish_reason": ""}, END]]


class Triton:
    """Answers every request with `answer`: lists of responses that arrive together, and errors in their places."""

    def __init__(self, answer=(), config=None):
        self.answer, self.document = answer, config or config_of()
        self.asked, self.ended, self.configs, self.spans = [], 0, 0, []

    async def config(self, model):
        self.configs += 1
        if isinstance(self.document, Exception):
            raise self.document
        return self.document

    async def is_ready(self, model):
        return not isinstance(self.document, Exception)

    async def responses(self, model, inputs, trace_parent=""):
        self.asked.append((model, inputs))
        self.spans.append(trace_parent)
        try:
            for together in self.answer:
                if isinstance(together, Exception):
                    raise together
                yield together
        finally:
            self.ended += 1


def exchange(triton, *requests, headers=None):
    """Status and body of each request, sent one after another."""
    return [(status, text) for status, text, _ in exchanged(triton, *requests, headers=headers)]


def exchanged(triton, *requests, headers=None, **options):
    """Status, body and headers of each request, sent one after another."""

    async def run():
        server = TestServer(Routes(triton, ["demo"], "demo-1", **options).application())
        await server.start_server(auto_decompress=False)
        async with TestClient(server) as client:
            answers = []
            for method, path, body in requests:
                data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
                async with client.request(method, path, data=data, headers=headers) as response:
                    answers.append((response.status, await response.text(), response.headers))
            return answers

    return asyncio.run(run())


def post(triton, body, path="/v1/chat/completions"):
    ((status, text),) = exchange(triton, ("POST", path, body))
    return status, text


def events(text):
    return [each.removeprefix("data: ") for each in text.split("\n\n") if each]


def test_an_answer_is_one_document():
    status, text = post(Triton(HELLO), CHAT)
    document = json.loads(text)

    assert status == 200
    assert document["choices"][0]["message"] == {"role": "assistant", "content": "Hello!", "refusal": None}
    assert document["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert (document["object"], document["system_fingerprint"]) == ("chat.completion", "demo-1")


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        (SPAN, True),
        (SPAN.replace("00-", "ff-", 1), False),
        (SPAN[:-1], False),
        ("00-" + "0" * 32 + SPAN[35:], False),
        ("", False),
    ],
)
def test_a_client_s_span_goes_to_triton_if_it_can_be_continued(sent, passed):
    """W3C Trace Context: a header that is wrong is left out, and the request is answered all the same."""
    triton = Triton(HELLO)
    ((status, _),) = exchange(triton, ("POST", "/v1/chat/completions", CHAT), headers={"traceparent": sent})

    assert (status, triton.spans) == (200, [sent if passed else ""])


def test_a_stream_says_who_speaks_then_what_then_why_it_ended():
    _, text = post(Triton(HELLO), {**CHAT, "stream": True})
    *chunks, done = events(text)
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]

    assert done == "[DONE]"
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["delta"].get("content") for choice in choices[1:]] == ["Hel", "lo", "!"]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]


def test_a_stream_ends_with_its_usage_where_that_was_asked_for():
    _, text = post(Triton(HELLO), {**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    *chunks, last, done = events(text)

    assert (json.loads(last)["choices"], json.loads(last)["usage"]["total_tokens"], done) == ([], 7, "[DONE]")
    assert all(json.loads(chunk)["usage"] is None for chunk in chunks)


def test_vllm_counts_the_tokens_of_each_response_and_writes_none_until_the_end():
    answer = [
        [{"text_output": "On", "finish_reason": "None", "num_input_tokens": 5, "num_output_tokens": [2]}],
        [{"text_output": ["ce"], "finish_reason": "length", "num_input_tokens": 5, "num_output_tokens": [1]}],
    ]
    body = {"model": "demo", "prompt": "x"}
    _, text = post(Triton(answer, config_of(VLLM, VLLM_OUTPUTS)), body, "/v1/completions")
    document = json.loads(text)

    assert (document["choices"][0]["text"], document["choices"][0]["finish_reason"]) == ("Once", "length")
    assert document["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(InputError("too long"), 400, None), (UnavailableError("stopping"), 503, "unavailable")],
)
def test_an_error_before_the_answer_has_a_status(error, status, code, stream):
    found, text = post(Triton([error]), {**CHAT, "stream": stream})
    told = json.loads(text)["error"]

    assert (found, told["message"], told["code"]) == (status, str(error), code)
    assert set(told) == {"message", "type", "param", "code"}


BROKEN = [
    [HELLO[0], UnavailableError("gone")],
    [HELLO[0]],
    [HELLO[0], [{"text_output": "", "finish_reason": "cancelled"}]],
]


@pytest.mark.parametrize("answer", BROKEN)
def test_an_answer_without_an_end_is_an_error(answer):
    status, text = post(Triton(answer), CHAT)

    assert (status, json.loads(text)["error"]["code"]) == (503, "unavailable")


@pytest.mark.parametrize("answer", BROKEN)
def test_a_stream_without_an_end_ends_with_an_error_in_place_of_done(answer):
    status, text = post(Triton(answer), {**CHAT, "stream": True})

    assert status == 200
    assert json.loads(events(text)[-1])["error"]["code"] == "unavailable"
    assert "[DONE]" not in text


def test_every_request_to_triton_is_ended():
    triton = Triton(BROKEN[0])
    exchange(triton, *[("POST", "/v1/chat/completions", {**CHAT, "stream": stream}) for stream in (True, False)])

    assert (len(triton.asked), triton.ended) == (2, 2)


def test_the_configuration_is_read_once_and_a_server_that_does_not_answer_is_asked_again():
    triton = Triton(HELLO, UnavailableError("starting"))
    request = ("POST", "/v1/chat/completions", CHAT)
    assert exchange(triton, request, request)[1][0] == 503
    triton.document = config_of()
    exchange(triton, request, request)

    assert triton.configs == 3


def test_an_unknown_model_is_not_found_and_never_asked_for():
    triton = Triton(HELLO)
    answers = exchange(
        triton,
        ("POST", "/v1/chat/completions", {**CHAT, "model": "other"}),
        ("GET", "/v1/models/other", b""),
    )

    assert [(status, json.loads(text)["error"]["code"]) for status, text in answers] == [(404, "model_not_found")] * 2
    assert (triton.asked, triton.configs) == ([], 0)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat/completions", 405), ("POST", "/v1/audio/speech", 404), ("GET", "/", 404), ("GET", "/v1/", 404)],
)
def test_other_routes_are_errors_in_the_same_form(method, path, status):
    ((found, text),) = exchange(Triton(), (method, path, b""))

    assert (found, set(json.loads(text)["error"])) == (status, {"message", "type", "param", "code"})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("message", "prompt_is_too_long"),
    [
        ("the prompt is 300 tokens long; this model takes at most 256. Shorten the text.", True),
        ("prompt and max_tokens together are 7 + 100 tokens; this model holds 10.", False),
    ],
)
@pytest.mark.parametrize(
    ("path", "body", "prompt", "length"),
    [
        ("/v1/chat/completions", CHAT, "messages", "max_tokens"),
        ("/v1/chat/completions", {**CHAT, "max_completion_tokens": 100}, "messages", "max_completion_tokens"),
        ("/v1/completions", {"model": "demo", "prompt": "x"}, "prompt", "max_tokens"),
    ],
)
def test_what_is_too_long_has_openai_s_code_and_the_clients_own_parameter(
    message, prompt_is_too_long, path, body, prompt, length, stream
):
    status, text = post(Triton([InputError(message)]), {**body, "stream": stream}, path)
    error = json.loads(text)["error"]

    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == (prompt if prompt_is_too_long else length)
    assert "text_input" not in error["message"]


def test_each_prompt_of_a_list_has_a_choice_and_all_share_their_usage():
    triton = Triton([[{"text_output": "Hello", "finish_reason": ""}], [END]])
    body = {"model": "demo", "prompt": ["a", "b", "c"], "stream_options": {"include_usage": True}, "stream": True}
    *chunks, last, _ = events(post(triton, body, "/v1/completions")[1])
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    whole = json.loads(post(triton, {"model": "demo", "prompt": ["a", "b", "c"]}, "/v1/completions")[1])

    assert [choice["index"] for choice in choices] == [0, 0, 1, 1, 2, 2]
    assert [(choice["index"], choice["text"]) for choice in whole["choices"]] == [
        (0, "Hello!"),
        (1, "Hello!"),
        (2, "Hello!"),
    ]
    assert (
        json.loads(last)["usage"] == whole["usage"] == {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
    )
    assert [inputs["text_input"] for _, inputs in triton.asked] == ["a", "b", "c"] * 2


@pytest.mark.parametrize("seeds", [[5, 6, 7], [2**63 - 1, 0, 1]])
@pytest.mark.parametrize("stream", [False, True])
def test_several_answers_to_a_prompt_have_a_seed_each_and_count_the_prompt_once(seeds, stream):
    body = {**CHAT, "n": 3, "seed": seeds[0], "temperature": 1.0, "stream": stream}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    triton = Triton(HELLO)
    _, text = post(triton, body)
    documents = [json.loads(each) for each in (events(text)[:-1] if stream else [text])]
    indexes = [choice["index"] for document in documents for choice in document["choices"]]

    assert sorted(set(indexes)) == [0, 1, 2]
    assert documents[-1]["usage"] == {"prompt_tokens": 4, "completion_tokens": 9, "total_tokens": 13}
    assert [inputs["seed"] for _, inputs in triton.asked] == seeds


def test_each_of_several_forced_calls_is_read_by_itself():
    body = {**CHAT, "n": 2, "tools": TOOLS, "tool_choice": "required"}
    text = post(Triton(answer_of('{"name": "f", "arguments": {"a": 1}}'), WITH_TOOLS), body)[1]
    calls = [choice["message"]["tool_calls"] for choice in json.loads(text)["choices"]]

    assert [[call["function"]["arguments"] for call in each] for each in calls] == [['{"a": 1}']] * 2


def test_the_number_of_tokens_so_far_comes_with_each_event_where_the_model_counts_them():
    counted = [[{**VLLM_SAYS, "finish_reason": "None"}], [VLLM_SAYS]]
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"model": "demo", "prompt": "x", "stream": True, "stream_options": options}
    *chunks, _ = events(post(Triton(counted, config_of(VLLM, VLLM_OUTPUTS)), body, "/v1/completions")[1])

    assert [json.loads(chunk)["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 2]


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", gzip.compress(json.dumps(CHAT).encode()), 200),
        ("deflate", zlib.compress(json.dumps(CHAT).encode()), 200),
        ("identity", json.dumps(CHAT).encode(), 200),
        ("gzip", b"no gzip", 400),
        ("gzip", b"", 400),
        ("gzip", gzip.compress(json.dumps(CHAT).encode())[:-1], 400),
        ("gzip", gzip.compress(json.dumps(CHAT).encode()) + b"x", 400),
        ("gzip", gzip.compress(b" " * (UNPACKED_BYTES + 1)), 413),
        ("br", b"x", 415),
        ("gzip, gzip", b"x", 415),
    ],
)
def test_a_compressed_request_is_unpacked_within_bounds(encoding, body, status):
    request = ("POST", "/v1/chat/completions", body)
    ((found, text),) = exchange(Triton(HELLO), request, headers={"Content-Encoding": encoding})

    assert found == status
    assert status == 200 or json.loads(text)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("given", "kept"), [("job-7/3", True), ("x" * 200, False), ("two words", False), (None, False)]
)
@pytest.mark.parametrize("body", [CHAT, {**CHAT, "stream": True}, {}])
def test_every_answer_has_the_id_of_its_request_and_so_have_the_access_log_and_the_model(given, kept, body, caplog):
    caplog.set_level(logging.INFO)
    headers = {} if given is None else {"X-Request-Id": given}
    triton = Triton(HELLO)
    ((_, _, answered),) = exchanged(triton, ("POST", "/v1/chat/completions", body), headers=headers)

    assert (answered["X-Request-Id"] == given) is kept
    assert all(inputs["id"] == answered["X-Request-Id"] for _, inputs in triton.asked)
    assert f"request {answered['X-Request-Id']}: POST /v1/chat/completions" in caplog.text


def test_models_say_how_long_a_sequence_they_take_and_since_when_they_are_served():
    config = config_of(max_sequence_tokens={"string_value": "512"})
    ((_, listed), (_, one)) = exchange(
        Triton(config=config), ("GET", "/v1/models", b""), ("GET", "/v1/models/demo", b"")
    )
    (model,) = json.loads(listed)["data"]

    assert model == json.loads(one)
    assert (model["max_model_len"], model["created"] > 1_700_000_000) == (512, True)


def test_embeddings_are_refused_with_models_that_make_some():
    status, text = post(Triton(), {"model": "demo", "input": "x"}, "/v1/embeddings")

    assert status == 400
    assert "demo generates text" in json.loads(text)["error"]["message"]


@pytest.mark.parametrize(("config", "status"), [(None, 200), (UnavailableError("loading"), 503)])
def test_health_follows_the_models_and_life_only_the_process(config, status):
    answers = exchange(Triton(config=config), ("GET", "/health", {}), ("GET", "/ping", {}), ("GET", "/health/live", {}))

    assert [found for found, _ in answers] == [status, status, 200]


def test_a_request_that_is_too_large_is_refused():
    ((status, text),) = exchange(Triton(), ("POST", "/v1/completions", b" " * (BODY_BYTES + 1)))

    assert (status, str(BODY_BYTES) in text) == (413, True)


def test_an_unexpected_error_tells_nothing_of_itself(caplog):
    status, text = post(Triton([ValueError("secret")]), CHAT)

    assert (status, "secret" in text) == (500, False)
    assert "secret" in caplog.text


def deltas(text):
    return [json.loads(each)["choices"][0] for each in events(text)[:-1]]


TOOLS = [{"type": "function", "function": {"name": "f"}}]
WITH_TOOLS = config_of((*OURS, "tools", "json_schema"))


def answer_of(text, call_format="hermes", reason="stop"):
    """A response for each character."""
    told = {"tool_call_format": call_format} if call_format is not None else {}
    return [[{"text_output": char, "finish_reason": "", **told}] for char in text] + [
        [{**END, **told, "text_output": ""}]
    ]


@pytest.mark.parametrize(
    ("text", "call_format", "content", "calls"),
    [
        ('Yes.<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', "hermes", "Yes.", [("f", {"a": 1})]),
        (
            '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n<tool_call>{"name": "g"}</tool_call>',
            "hermes",
            None,
            [("f", {}), ("g", {})],
        ),
        (
            '{"name": "f", "parameters": {"a": "b;}"}}; {"name": "g", "arguments": {"b": 2}}',
            "llama3_json",
            None,
            [("f", {"a": "b;}"}), ("g", {"b": 2})],
        ),
        ('<|python_tag|>{"name": "f", "parameters": {}}', "llama3_json", None, [("f", {})]),
        ('[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]', "mistral", None, [("f", {"a": 1})]),
        (' [{"name": "f", "parameters": {"a": 1}}]', "mistral", None, [("f", {"a": 1})]),
        ('<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', "hermes", None, [("f", {"a": 1})]),
        *(
            (text, call_format, text, [])
            for one in ('{"name": "Alice", "arguments": {}}', '{"name": "f", "age": 30}', '{"name": "f"}')
            for text, call_format in (
                (one, "llama3_json"),
                (f'{{"name": "f", "parameters": {{}}}}; {one}', "llama3_json"),
                (f"[{one}]", "mistral"),
            )
        ),
        (
            "a <tool_ and <tool_call> no JSON</tool_call>.",
            "hermes",
            "a <tool_ and <tool_call> no JSON</tool_call>.",
            [],
        ),
        ("<tool_call>cut off", "hermes", "<tool_call>cut off", []),
        *(
            (text, "hermes", text, [])
            for value in ("NaN", "-Infinity", "1e999", r'"\ud800"', "1" + "0" * 400)
            for text in [f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>']
        ),
        ("[1, 2] is a list", "mistral", "[1, 2] is a list", []),
        ('{"answer": 1}', "llama3_json", '{"answer": 1}', []),
        ("Paris.", "llama3_json", "Paris.", []),
        ("<tool_call>{}</tool_call>", "", "<tool_call>{}</tool_call>", []),
        ("<tool_call>{}</tool_call>", None, "<tool_call>{}</tool_call>", []),
    ],
)
def test_calls_of_tools_are_told_from_text(text, call_format, content, calls):
    body = {**CHAT, "tools": [*TOOLS, {"type": "function", "function": {"name": "g"}}]}
    whole = json.loads(post(Triton(answer_of(text, call_format), WITH_TOOLS), body)[1])["choices"][0]
    stream = deltas(post(Triton(answer_of(text, call_format), WITH_TOOLS), {**body, "stream": True})[1])
    streamed = [call for choice in stream for call in choice["delta"].get("tool_calls", ())]
    reason = "tool_calls" if calls else "stop"

    assert (whole["message"]["content"], whole["finish_reason"]) == (content, reason)
    made = [call["function"] for call in whole["message"].get("tool_calls", ())]
    assert [(call["name"], json.loads(call["arguments"])) for call in made] == calls
    assert "".join(choice["delta"].get("content") or "" for choice in stream) == (content or "")
    assert [call["function"] for call in streamed] == made
    assert [call["index"] for call in streamed] == list(range(len(calls)))
    assert stream[-1]["finish_reason"] == reason


@pytest.mark.parametrize(
    ("choice", "text", "call"),
    [
        ({"type": "function", "function": {"name": "f"}}, '{"a": 1}', ("f", '{"a": 1}')),
        ("required", '{"name": "f", "arguments": {"a": 1}}', ("f", '{"a": 1}')),
    ],
)
def test_an_answer_that_had_to_be_a_call_is_one(choice, text, call):
    body = {**CHAT, "tools": TOOLS, "tool_choice": choice}
    found = json.loads(post(Triton(answer_of(text), WITH_TOOLS), body)[1])["choices"][0]
    (made,) = found["message"]["tool_calls"]

    assert ((made["function"]["name"], made["function"]["arguments"]), found["finish_reason"]) == (call, "tool_calls")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("parallel", "expected"), [(None, ["f", "g"]), (True, ["f", "g"]), (False, ["f"])])
def test_a_client_that_takes_one_call_gets_the_first(parallel, expected, stream):
    text = '<tool_call>{"name": "f"}</tool_call>\n<tool_call>{"name": "g"}</tool_call>'
    body = {**CHAT, "tools": TOOLS, "parallel_tool_calls": parallel, "stream": stream}
    told = post(Triton(answer_of(text), WITH_TOOLS), body)[1]
    messages = [each["delta"] for each in deltas(told)] if stream else [json.loads(told)["choices"][0]["message"]]
    calls = [call["function"]["name"] for message in messages for call in message.get("tool_calls", ())]

    assert calls == expected


def test_text_that_begins_like_a_call_is_held_back_until_it_is_known_for_one():
    stream = deltas(post(Triton(answer_of("a <tool> b"), WITH_TOOLS), {**CHAT, "tools": TOOLS, "stream": True})[1])

    assert [choice["delta"].get("content") for choice in stream[1:-1]][:4] == ["a", " ", "<tool>", " "]


ENTRY = {"token": " Hi", "logprob": -0.5, "bytes": [32, 72, 105], "top_logprobs": []}


def test_log_probabilities_come_with_the_text_of_their_tokens():
    answer = [[{"text_output": " Hi", "finish_reason": "", "logprobs": json.dumps([ENTRY])}], [END]]
    model, body = config_of((*OURS, "logprobs")), {**CHAT, "logprobs": True}
    whole = json.loads(post(Triton(answer, model), body)[1])["choices"][0]
    stream = deltas(post(Triton(answer, model), {**body, "stream": True})[1])

    assert whole["logprobs"]["content"] == [ENTRY]
    assert [choice["logprobs"] and choice["logprobs"]["content"] for choice in stream] == [None, [ENTRY], None]


def test_a_document_of_more_log_probabilities_than_may_be_kept_is_refused_and_a_stream_of_them_is_sent(monkeypatch):
    monkeypatch.setattr(sending, "MOST_LOGPROBS", 10_000)  # a tenth of what takes seconds
    tokens = [{**ENTRY, "top_logprobs": [ENTRY] * 20}] * (sending.MOST_LOGPROBS // 4 // 21)
    some = {"text_output": " Hi" * len(tokens), "finish_reason": "", "logprobs": json.dumps(tokens)}
    answer, model = [[some], [some], [END]], config_of((*OURS, "logprobs", "top_logprobs"))
    body = {**CHAT, "logprobs": True, "top_logprobs": 20}
    enough, refused = post(Triton(answer, model), {**body, "n": 2}), post(Triton(answer, model), {**body, "n": 3})
    stream = deltas(post(Triton(answer, model), {**body, "n": 3, "stream": True})[1])

    assert (enough[0], refused[0]) == (200, 400)
    assert "more than 10000 log-probabilities" in refused[1]
    assert sum(len((choice["logprobs"] or {"content": ()})["content"]) for choice in stream) == 6 * len(tokens)


def test_a_stream_keeps_none_of_the_log_probabilities_that_it_has_sent():
    answer = Answer(ChatForm, "demo", "demo-1")
    answer.begin()

    def entry():
        return {**ENTRY, "bytes": list(b"Hi"), "top_logprobs": [dict(ENTRY) for _ in range(20)]}

    tracemalloc.start()
    for _ in range(200):
        answer.event(Piece(" Hi", logprobs=(entry(),)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 100_000  # 200 of these entries take more than a megabyte


@pytest.mark.parametrize("stream", [False, True])
def test_a_log_probability_that_is_no_number_is_still_json(stream):
    answer = [[{"text_output": " Hi", "finish_reason": "", "logprobs": json.dumps([{**ENTRY, "logprob": nan}])}], [END]]
    triton = Triton(answer, config_of((*OURS, "logprobs")))
    text = post(triton, {**CHAT, "logprobs": True, "stream": stream})[1]

    assert "NaN" not in text


def test_a_completion_has_log_probabilities_in_lists():
    entries = [{**ENTRY, "top_logprobs": [ENTRY]}, {**ENTRY, "token": "!", "top_logprobs": [ENTRY]}]
    answer = [[{"text_output": " Hi!", "finish_reason": "", "logprobs": json.dumps(entries)}], [END]]
    body = {"model": "demo", "prompt": "x", "logprobs": 1}
    triton = Triton(answer, config_of((*OURS, "logprobs", "top_logprobs")))
    found = json.loads(post(triton, body, "/v1/completions")[1])["choices"][0]["logprobs"]

    assert found == {
        "tokens": [" Hi", "!"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{" Hi": -0.5}] * 2,
        "text_offset": [0, 3],
    }
    assert triton.asked[0][1]["top_logprobs"] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_is_joined_from_the_parts_of_the_prompt(stream):
    parts = [
        [{**ENTRY, "token": "On", "bytes": [*b"On"]}, {**ENTRY, "token": "\ufffd", "bytes": []}],
        [{**ENTRY, "token": "\ufffd", "bytes": [*"é".encode()]}, {**ENTRY, "token": " up", "bytes": [*b" up"]}],
    ]
    scored = [[{"text_output": "", "finish_reason": "", "prompt_logprobs": json.dumps(each)}] for each in parts]
    body = {"model": "demo", "prompt": [1, 2, 3], "echo": True, "logprobs": 0, "stream": stream}
    triton = Triton([*scored, [END]], config_of((*OURS, "logprobs", "prompt_logprobs")))
    text = post(triton, body, "/v1/completions")[1]
    choices = [json.loads(each)["choices"][0] for each in (events(text)[:-1] if stream else [text])]
    found = [choice["logprobs"] for choice in choices if choice["logprobs"]]

    assert "".join(choice["text"] for choice in choices) == "Oné up!"
    assert [token for each in found for token in each["tokens"]] == ["On", "\ufffd", "\ufffd", " up"]
    assert [offset for each in found for offset in each["text_offset"]] == [0, 2, 2, 3]


def test_vllm_s_log_probabilities_are_read_too():
    position = {
        "7": {"logprob": -2.0, "rank": 3, "decoded_token": "x"},
        "8": {"logprob": -0.1, "rank": 1, "decoded_token": "y"},
    }
    last = {"text_output": "x", "finish_reason": "stop", "logprobs": [json.dumps([position])], "num_input_tokens": 1}
    triton = Triton([[last]], config_of(VLLM, VLLM_OUTPUTS))
    found = json.loads(post(triton, {"model": "demo", "prompt": "x", "logprobs": 1}, "/v1/completions")[1])

    assert found["choices"][0]["logprobs"]["top_logprobs"] == [{"y": -0.1}]
    assert found["choices"][0]["logprobs"]["token_logprobs"] == [-2.0]


PROMPT = {"prompt": "<|user|>Hi", "prompt_tokens": 3, "max_tokens": 200, "tool_call_format": "none"}
VLLM_SAYS = {"text_output": "Hello", "finish_reason": "stop", "num_input_tokens": 3, "num_output_tokens": 1}


class TwoModels(Triton):
    """Answers a request for a prompt with `prompt`, and every other one with `answer`."""

    def __init__(self, prompt, answer):
        super().__init__(answer, config_of(VLLM, VLLM_OUTPUTS, **PROMPT_MODEL))
        self.prompt = prompt

    async def responses(self, model, inputs, trace_parent=""):
        if model != "demo_prompt":
            async for together in super().responses(model, inputs):
                yield together
            return
        self.asked.append((model, inputs))
        if isinstance(self.prompt, Exception):
            raise self.prompt
        yield [self.prompt]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_with_vllm_asks_for_its_prompt_first(stream):
    triton = TwoModels(PROMPT, [[VLLM_SAYS]])
    status, text = post(triton, {**CHAT, "stream": stream, "seed": 3})
    (first, to_render), (second, inputs) = triton.asked

    assert (status, "Hello" in text) == (200, True)
    assert (first, json.loads(to_render["messages"])) == ("demo_prompt", CHAT["messages"])
    assert (second, inputs["text_input"]) == ("demo", "<|user|>Hi")
    assert json.loads(inputs["sampling_parameters"]) == {"temperature": 0, "seed": 3, "max_tokens": 200}


def test_a_model_with_another_one_for_its_prompts_has_the_limits_of_that_one():
    class WithLimits(TwoModels):
        async def config(self, model):
            limits = {"max_input_tokens": {"string_value": "64"}, "max_sequence_tokens": {"string_value": "96"}}
            return config_of(**limits) if model == "demo_prompt" else await super().config(model)

    ((_, listed),) = exchange(WithLimits(PROMPT, [[VLLM_SAYS]]), ("GET", "/v1/models/demo", b""))

    assert json.loads(listed)["max_model_len"] == 96


def test_a_call_of_a_tool_by_vllm_is_read_as_the_chat_template_writes_it():
    call = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    triton = TwoModels({**PROMPT, "tool_call_format": "hermes"}, [[{**VLLM_SAYS, "text_output": call}]])
    tools = [{"type": "function", "function": {"name": "f"}}]
    _, text = post(triton, {**CHAT, "tools": tools})
    choice = json.loads(text)["choices"][0]

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert json.loads(triton.asked[0][1]["tools"]) == tools


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "expected"), [(InputError("too long"), 400), (UnavailableError("loading"), 503)])
def test_a_prompt_that_is_not_made_is_an_error_and_vllm_is_not_asked(stream, error, expected):
    triton = TwoModels(error, [[VLLM_SAYS]])
    status, text = post(triton, {**CHAT, "stream": stream})

    assert (status, str(error) in json.loads(text)["error"]["message"]) == (expected, True)
    assert [model for model, _ in triton.asked] == ["demo_prompt"]
