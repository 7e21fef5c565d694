"""The llmapi model's runtime under the scheduler that every engine shares, over a fake of TensorRT-LLM's LLM API."""

import ast
import dataclasses
import importlib.util
import inspect
import json
import sys
import threading
from types import ModuleType

import pytest
from generation.requests.adapters import Adapter
from generation.requests.question import Job
from generation.running.scheduler import Scheduler
from generation.runtime import Controls, Sampling
from generation.settings import Limits

from tests.fakes.servers import tensorrt_llm_api
from tests.fakes.servers.generation_runtime import ByteTokenizer, FakeRuntime, RecordedReply
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S, until

MODEL = REPOSITORY / "model_repository_templates" / "llmapi" / "model" / "1" / "model.py"
CONTRACT = json.loads((REPOSITORY / "tests" / "contracts" / "tensorrt_llm_llmapi.json").read_text())
END, OTHER_END = 0, 1
ENDLESS = 1_000_000
"""More tokens than the stand-in makes in the longest time that a test may take."""
TOKENIZER = ByteTokenizer()


@pytest.fixture
def model(monkeypatch):
    """The model's module, as Triton's stub loads it."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", ModuleType("triton_python_backend_utils"))
    monkeypatch.delitem(sys.modules, "generation.service", raising=False)
    for name, module in tensorrt_llm_api.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("llmapi_model", MODEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("generation.service", None)


class Service:
    """A scheduler over the runtime, and what it reported."""

    def __init__(self, model, slots=4, adapters=None, **behaviour):
        self.llm = tensorrt_llm_api.LLM(
            "engine", skip_tokenizer_init="guided_decoding_backend" not in behaviour, **behaviour
        )
        self.failed = threading.Event()
        runtime = model.LlmApiRuntime(self.llm, [END, OTHER_END], adapters or {})
        self.scheduler = Scheduler(runtime, TOKENIZER, slots=slots, on_failure=lambda _: self.failed.set())

    def ask(self, text, *, sampling=None, stream=True):
        reply = RecordedReply()
        self.scheduler.submit(Job(TOKENIZER.encode(text), sampling or Sampling(1000), stream), reply)
        return reply


@pytest.fixture
def serve(model):
    services = []

    def start(**behaviour):
        services.append(Service(model, **behaviour))
        return services[-1]

    yield start
    for service in services:
        service.scheduler.close(0.2)


@pytest.mark.parametrize("with_end", [True, False])
@pytest.mark.parametrize("reports", ["everything", "new"])
def test_text_is_streamed_in_new_pieces_however_the_runtime_reports_tokens(serve, reports, with_end):
    service = serve(answers={"say": "日本 😀!"}, reports=reports, with_end=with_end)
    streamed, whole = service.ask("say"), service.ask("say", stream=False)

    assert streamed.text == whole.text == "日本 😀!"
    assert not any("\ufffd" in piece for piece in streamed.pieces)
    assert (streamed.finish_reason, whole.finish_reason, len(whole.pieces)) == ("stop", "stop", 1)


@pytest.mark.parametrize("text", ["aab", "aaaaaa", "abab abab abab"])
@pytest.mark.parametrize("reports", ["everything", "new"])
def test_an_answer_that_begins_with_the_same_again_is_whole(serve, reports, text):
    """Tokens [1], [1], [2]: from a first and a second report alone nobody can tell news from everything so far."""
    reply = serve(answers={"say": text}, reports=reports).ask("say")

    assert (reply.text, "".join(reply.pieces)) == (text, text)


@pytest.mark.parametrize("reports", ["everything", "new"])
def test_max_tokens_ends_an_answer(serve, reports):
    reply = serve(answers={"say": "abcdef"}, reports=reports).ask("say", sampling=Sampling(3))

    assert (reply.text, reply.finish_reason) == ("abc", "length")


@pytest.mark.parametrize("ends", ["timeout", "cancelled"])
def test_an_answer_that_the_engine_ended_before_it_was_whole_is_a_failure(serve, ends):
    reply = serve(answers={"say": "abcdef"}, ends=ends).ask("say", stream=False)

    assert (reply.text, reply.finish_reason) == ("", "")
    assert reply.failure == f"the engine ended the answer: {ends}. Ask again."


def test_many_at_once_get_their_own_answers(serve):
    service = serve(slots=3)
    replies = [service.ask(f"question {number}") for number in range(20)]

    assert [reply.text for reply in replies] == [f"question {number}" for number in range(20)]


def test_greedy_is_top_k_1_and_every_end_of_the_checkpoint_ends_an_answer(serve):
    service = serve()
    assert service.ask("hi", sampling=Sampling(7)).text == "hi"
    (asked,) = service.llm.asked

    assert (asked.top_k, asked.temperature, asked.max_tokens) == (1, None, 7)
    assert (asked.end_id, asked.stop_token_ids, asked.detokenize) == (END, [OTHER_END], False)


def test_a_warm_answer_takes_its_seed_and_without_one_a_new_seed_each_time(serve):
    service = serve()
    for seed in (7, None, None):
        assert service.ask("hi", sampling=Sampling(9, temperature=0.5, seed=seed)).text == "hi"
    given, one, other = service.llm.asked

    assert (given.temperature, given.top_k, given.seed) == (0.5, None, 7)
    assert one.seed != other.seed


def test_what_the_engine_obeys_reaches_it_and_nothing_that_it_would_ignore(serve):
    service = serve(guided_decoding_backend="xgrammar")
    controls = Controls(0.5, 3, 2, 0.1, 0.2, 1.5, ("no",), grammar='root ::= "null"')
    for temperature in (0.0, 0.5):
        assert service.ask("hi", sampling=Sampling(9, temperature=temperature, controls=controls)).text == "hi"
    greedy, warm = service.llm.asked

    assert (greedy.top_k, greedy.top_p, warm.top_k, warm.top_p) == (1, None, 3, 0.5)
    assert (warm.min_tokens, warm.guided_decoding.grammar, warm.logprobs) == (2, 'root ::= "null"', None)


def test_without_its_backend_a_guided_answer_is_refused_and_the_others_go_on(serve):
    service = serve()
    guided = service.ask("hi", sampling=Sampling(9, controls=Controls(grammar='root ::= "1"')))

    assert (guided.wait_for_end(), "guided decoding is not enabled" in guided.failure) == (None, True)
    assert service.ask("hi").text == "hi"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("alternatives", [0, 2])
def test_log_probabilities_come_with_each_token_but_not_with_the_end(serve, alternatives, stream):
    reply = serve().ask("hi", stream=stream, sampling=Sampling(9, controls=Controls(logprobs=alternatives)))
    assert reply.text == "hi"
    entries = [entry for piece in reply.logprobs for entry in piece]

    assert [(chr(entry.token), entry.logprob) for entry in entries] == [("h", -0.5), ("i", -0.5)]
    assert [len(entry.alternatives) for entry in entries] == [alternatives] * 2
    assert [entry.alternatives[:1] for entry in entries] == [((ord("A"), -0.1),) if alternatives else ()] * 2


def test_an_adapter_answers_where_the_request_chose_it(serve, tmp_path):
    adapters = {name: Adapter(name, number, tmp_path) for number, name in ((1, "polite"), (2, "terse"))}
    service = serve(adapters=adapters)
    for name in ("terse", ""):
        assert service.ask("hi", sampling=Sampling(7, adapter=name)).text == "hi"
    terse, nobody = service.llm.adapters

    assert (terse.lora_name, terse.lora_int_id, terse.lora_path) == ("terse", 2, str(tmp_path))
    assert nobody is None


def test_an_adapter_whose_folder_is_missing_keeps_the_model_from_loading(model, tmp_path):
    missing = {"polite": Adapter("polite", 1, tmp_path / "nowhere")}

    with pytest.raises(ValueError, match="nowhere"):
        model.LlmApiRuntime(tensorrt_llm_api.LLM("engine", skip_tokenizer_init=True), [END], missing)


def test_a_client_that_left_is_aborted_and_frees_its_slot(serve):
    service = serve(slots=1, endless=["endless"])
    left = service.ask("endless")
    left.wait_for_pieces(2)
    waits = service.ask("next")
    left.gone = True

    assert waits.text == "next"
    left.wait_for_end()
    assert left.finish_reason == "cancelled"
    assert service.llm.aborted == ["endless"]


def test_a_request_that_the_engine_refuses_leaves_the_others_alone(serve):
    service = serve(refuses=["too much"])
    refused, served = service.ask("too much"), service.ask("fine")

    assert (served.text, refused.text) == ("fine", "")
    assert "the prompt is too long for this engine" in refused.failure
    assert not service.failed.is_set()


def test_an_engine_that_breaks_fails_everyone_and_says_so(serve):
    service = serve(endless=["runs"], breaks=["last straw"])
    runs = service.ask("runs")
    runs.wait_for_pieces(1)
    last = service.ask("last straw")

    assert last.text == ""
    assert "no memory is left" in runs.failure
    assert service.failed.wait(PATIENCE_S)


def test_closing_finishes_what_runs(serve):
    service = serve(answers={"say": "a" * 200})
    reply = service.ask("say")
    service.scheduler.close(PATIENCE_S)

    assert reply.text == "a" * 200


def test_what_runs_may_take_as_long_as_the_pod_says_when_the_server_ends(model, monkeypatch):
    monkeypatch.setenv("SLIPWAY_DRAIN_S", "0.05")
    runtime, reply = FakeRuntime({"endless": "x" * ENDLESS}), RecordedReply()
    service = model.Service(runtime, TOKENIZER, Limits(99, ENDLESS, 9), slots=1)
    service._scheduler.submit(Job(TOKENIZER.encode("endless"), Sampling(ENDLESS), True), reply)
    service.drain()

    reply.wait_for_end()
    assert reply.failure == "the model stopped before the answer was complete. Ask again."


def test_a_server_without_requests_ends_at_once_however_long_it_may_take(model, monkeypatch):
    monkeypatch.setenv("SLIPWAY_DRAIN_S", "600")  # this test may take a fraction of it
    service = model.Service(FakeRuntime(), TOKENIZER, Limits(99, 99, 9), slots=1)

    service.drain()

    assert not service._scheduler._thread.is_alive()


def test_an_idle_runtime_has_no_work(serve, model):
    service = serve()
    assert service.ask("one").text == "one"
    runtime = service.scheduler._runtime

    until(lambda: not runtime.has_work(), every_s=0.001)


def test_the_adapter_to_tensorrt_llm_is_short():
    (adapter,) = [node for node in ast.parse(MODEL.read_text()).body if getattr(node, "name", "") == "LlmApiRuntime"]

    assert adapter.end_lineno - adapter.lineno < 60


def test_the_fake_has_nothing_that_the_real_one_has_not():
    fake = tensorrt_llm_api
    for module, names in CONTRACT["exports"].items():
        assert {name for name in vars(fake.modules()[module]) if name[0].isupper()} == set(names)
    for made in (fake.SamplingParams, fake.CompletionOutput, fake.LoRARequest, fake.GuidedDecodingParams):
        assert {each.name for each in dataclasses.fields(made)} <= set(CONTRACT[made.__name__])
    assert set(inspect.signature(fake.LLM.generate_async).parameters) - {"self"} <= set(CONTRACT["generate_async"])
    assert {name for name in vars(fake.LLM) if name[0] != "_"} == set(CONTRACT["LLM"])
    assert {name for name in vars(fake.RequestOutput) if name[0] != "_"} <= set(CONTRACT["RequestOutput"])
