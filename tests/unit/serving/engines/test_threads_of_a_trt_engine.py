"""The pool of threads that wait for TensorRT-LLM's answers."""

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from tests.support.paths import HUB, REPOSITORY
from tests.support.waiting import until

MODEL = REPOSITORY / "model_repository_templates" / "trt-engine" / "model" / "1" / "model.py"
CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"


@pytest.fixture
def model(monkeypatch):
    """The model's module, as Triton's stub loads it."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", ModuleType("triton_python_backend_utils"))
    monkeypatch.delitem(sys.modules, "generation.service", raising=False)
    monkeypatch.syspath_prepend(str(MODEL.parent))
    spec = importlib.util.spec_from_file_location("trt_engine_model", MODEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("generation.service", None)


@pytest.mark.parametrize(("slots", "threads"), [(1, 5), (64, 320), (256, 512), (2048, 2304)])
def test_a_whole_batch_runs_and_a_bounded_number_of_requests_waits_in_the_engine(model, slots, threads):
    parameters = {
        "engine_folder": str(CHECKPOINT),
        "max_batch_size": str(slots),
        "preprocessing": "demo_preprocessing",
        "tensorrt_llm": "demo_tensorrt_llm",
    }
    config = {"parameters": {name: {"string_value": value} for name, value in parameters.items()}}
    served = model.TritonPythonModel()
    served.initialize({"model_config": json.dumps(config), "model_repository": "/", "model_version": "1"})

    assert served._threads._max_workers == threads
    served.finalize()


class Left:
    """A generation whose client has gone, before or while it is looked after."""

    def __init__(self, *failures, left=True):
        self.left, self.failures, self.stops = left, list(failures), 0
        self.reply = SimpleNamespace(is_cancelled=lambda: True)

    def stop(self):
        if self.failures:
            raise self.failures.pop()
        self.stops += 1


def test_a_stop_that_fails_is_tried_again_and_keeps_nobody_from_being_stopped(model, monkeypatch):
    logged = []
    monkeypatch.setattr(model.pb_utils, "Logger", SimpleNamespace(log_error=logged.append), raising=False)
    engine = model.Engine("tensorrt_llm")
    failing, other = Left(RuntimeError("no shared memory")), Left(left=False)
    engine._running.update(a=failing, b=other)
    until(lambda: failing.stops and other.stops)
    engine.close()

    assert other.left
    assert len(logged) == 1
    assert "no shared memory" in logged[0]
