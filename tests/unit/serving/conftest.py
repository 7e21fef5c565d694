"""The served models' own modules are found as Triton's stub finds them: in the version's folder."""

import importlib.util
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from tests.support.waiting import PATIENCE_S
from tests.unit.serving.served_modules import OPENVINO, TEMPLATES

sys.path.insert(0, str(OPENVINO))
sys.path.extend(str(TEMPLATES / kind / "model" / "1") for kind in ("llmapi", "vllm"))


@pytest.fixture
def openvino(monkeypatch):
    """The openvino model's module, as Triton's stub loads it."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", ModuleType("triton_python_backend_utils"))
    monkeypatch.delitem(sys.modules, "generation.service", raising=False)
    spec = importlib.util.spec_from_file_location("openvino_model", OPENVINO / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("generation.service", None)


@pytest.fixture(autouse=True, scope="session")
def patient():
    """What renders templates and translates schemas may be held up; how much it may compute is as shipped."""
    from generation.workers.preparers import BUDGET, PREPARERS

    for worker in PREPARERS._all:
        worker._budget = replace(BUDGET, seconds=PATIENCE_S)
