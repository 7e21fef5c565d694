"""The trt-engine model chooses an adapter, and gives the engine its weights when the engine does not have them.

The engine here has a cache of adapters as TensorRT-LLM's: a number that it does not know is an error, with or without
earlier requests for it (cpp/tensorrt_llm/batch_manager/peftCacheManager.cpp, addRequestPeft).
"""

import importlib.util
import json
import sys
from types import ModuleType

import numpy as np
import pytest

from tests.fakes.servers.generation_runtime import ByteTokenizer
from tests.fakes.servers.triton_stub import InferenceResponse, Request, Stub, Tensor, TritonError
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S

FOLDER = REPOSITORY / "model_repository_templates" / "trt-engine" / "model" / "1"
OURS = ("generation.service", "generation.model_files.hf_tokenizer", "engine_adapters")
END = 0


class Engine:
    """The preprocessing and tensorrt_llm models; `cached` has what came for each adapter, by its number."""

    def __init__(self, refuses=None, says=b"model", thought_marks=(-1, -1)):
        self.cached, self.asked, self.refuses = {}, [], refuses
        self.says, self.thought_marks = says, thought_marks

    def prepare(self, _, inputs):
        assert set(inputs) <= {"text_input", "max_tokens", "temperature", "seed", "stop_words"}
        tensors = {"input_ids": [[1, 2]], "input_lengths": [[2]], "request_output_len": [[8]], "min_tokens": [[1]]}
        numbers = [Tensor(name, np.array(value, dtype=np.int32)) for name, value in tensors.items()]
        marks = Tensor("thought_marks", np.array(self.thought_marks, dtype=np.int32))
        return InferenceResponse([*numbers, marks, Tensor("tool_call_format", np.array([b"none"], dtype=object))])

    def generate(self, number, inputs):
        if "stop" in inputs:
            return []
        self.asked.append((number, sorted(name for name in inputs if name.startswith("lora"))))
        if self.refuses:
            return [InferenceResponse(error=TritonError(self.refuses))]
        text = self.says
        if "lora_task_id" in inputs:
            task = int(inputs["lora_task_id"][0, 0])
            if "lora_weights" in inputs:
                self.cached[task] = (inputs["lora_weights"], inputs["lora_config"])
            if task not in self.cached:
                message = f"LoRA task {task} not found in cache. Please send LoRA weights with request"
                return [InferenceResponse(error=TritonError(f"Executor failed process requestId 5: {message}"))]
            text = f"adapter {task}".encode()
        ids = np.array([[[*text, END]]], dtype=np.int32)
        lengths = np.array([[len(text) + 1]], dtype=np.int32)
        return [InferenceResponse([Tensor("output_ids", ids), Tensor("sequence_length", lengths)])]


@pytest.fixture
def load(monkeypatch, tmp_path):
    """The model, as Triton's stub loads it, over an engine."""
    loaded = []

    def start(engine, adapters=("polite", "terse"), dtype=np.float16):
        stub = Stub(demo_preprocessing=engine.prepare, demo_tensorrt_llm=engine.generate)
        for name in OURS:
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stub.module)
        monkeypatch.setitem(sys.modules, "generation.model_files.hf_tokenizer", tokenizer_module())
        monkeypatch.syspath_prepend(str(FOLDER))
        spec = importlib.util.spec_from_file_location("trt_engine_model", FOLDER / "model.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        (tmp_path / "1" / "engine").mkdir(parents=True)
        for number, name in enumerate(sorted(adapters), start=1):
            write(tmp_path / "1" / "engine" / "lora" / name, number, dtype)
        folders = {name: f"lora/{name}" for name in adapters}
        parameters = {
            "engine_folder": "engine",
            "max_batch_size": "1",
            "preprocessing": "demo_preprocessing",
            "tensorrt_llm": "demo_tensorrt_llm",
            **({"adapters": json.dumps(folders)} if adapters else {}),
        }
        config = {"parameters": {name: {"string_value": value} for name, value in parameters.items()}}
        model = module.TritonPythonModel()
        model.initialize({"model_config": json.dumps(config), "model_repository": str(tmp_path), "model_version": "1"})
        loaded.append(model)
        return model

    yield start
    for model in loaded:
        model.finalize()
    for name in OURS:
        sys.modules.pop(name, None)


def write(folder, number, dtype):
    folder.mkdir(parents=True)
    np.save(folder / "model.lora_weights.npy", np.full((1, 2, 4), number, dtype=np.float16).view(dtype))
    np.save(folder / "model.lora_config.npy", np.full((1, 2, 3), number, dtype=np.int32))


def tokenizer_module():
    class Tokenizer(ByteTokenizer):
        end_ids, pad_id = (END,), END

        def __init__(self, *_, **__):
            pass

    module = ModuleType("generation.model_files.hf_tokenizer")
    module.HuggingFaceTokenizer = Tokenizer
    return module


def answers(model, *requests):
    """Each request's text, or its error; one after the other."""
    for request in requests:
        model.execute([request])
        assert request.ended.wait(PATIENCE_S), "no end came"
    return [told(request.sent[-1][0]) for request in requests]


def told(response):
    if response.has_error():
        return response.error()
    return response.output_tensors()[0].as_numpy()[0].decode()


def test_the_first_request_for_an_adapter_brings_its_weights_and_later_ones_only_its_number(load):
    engine = Engine()
    model = load(engine)

    told = answers(model, *(Request(text_input="Hi?", lora_name="terse") for _ in range(2)))

    assert told == ["adapter 2", "adapter 2"]
    names = [names for _, names in engine.asked]
    assert names == [["lora_task_id"], ["lora_config", "lora_task_id", "lora_weights"], ["lora_task_id"]]
    weights, config = engine.cached[2]
    assert (weights.shape, weights.dtype, config.shape, config.dtype) == ((1, 2, 4), np.float16, (1, 2, 3), np.int32)
    assert (weights == 2).all()


def test_a_request_that_is_sent_again_has_a_number_of_its_own(load):
    engine = Engine()
    answers(load(engine), Request(text_input="Hi?", lora_name="terse"))

    (first, _), (second, _) = engine.asked
    assert first != second


def test_an_adapter_that_lost_its_place_is_sent_again(load):
    engine = Engine()
    model = load(engine)
    answers(model, Request(text_input="Hi?", lora_name="polite"))
    engine.cached.clear()

    assert answers(model, Request(text_input="Hi?", lora_name="polite")) == ["adapter 1"]


def test_without_a_name_the_model_itself_answers(load):
    engine = Engine()

    assert answers(load(engine), Request(text_input="Hi?")) == ["model"]
    assert [names for _, names in engine.asked] == [[]]


@pytest.mark.parametrize(("adapters", "known"), [(("polite", "terse"), "polite, terse"), ((), "no adapters")])
def test_an_unknown_adapter_is_refused_with_those_that_there_are(load, adapters, known):
    engine = Engine()
    (error,) = answers(load(engine, adapters), Request(text_input="Hi?", lora_name="rude"))

    assert error.code() == TritonError.INVALID_ARG
    assert f"lora_name is 'rude'; this release has {known}." in error.message()
    assert engine.asked == []


def test_another_error_of_the_engine_reaches_the_client_and_is_not_tried_again(load):
    engine = Engine(refuses="lora_weights has to few values for attn_q")
    (error,) = answers(load(engine), Request(text_input="Hi?", lora_name="polite"))

    assert error.message() == "lora_weights has to few values for attn_q"
    assert len(engine.asked) == 1


def test_weights_of_a_type_that_numpy_lacks_go_by_dlpack(load, monkeypatch):
    """torch is TensorRT-LLM's; here it only says what it was given."""
    torch = ModuleType("torch")
    torch.bfloat16 = "bfloat16"
    torch.from_numpy = Viewed
    monkeypatch.setitem(sys.modules, "torch", torch)
    engine = Engine()

    assert answers(load(engine, dtype="V2"), Request(text_input="Hi?", lora_name="terse")) == ["adapter 2"]
    viewed, dtype = engine.cached[2][0]
    assert (dtype, viewed.dtype) == ("bfloat16", np.int16)
    assert (viewed.view(np.float16) == 2).all()


class Viewed:
    def __init__(self, weights):
        self.weights = weights

    def view(self, dtype):
        return (self.weights, dtype)
