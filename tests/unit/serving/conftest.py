"""The served models' own modules are found as Triton's stub finds them: in the version's folder."""

import importlib.util
import sys
from types import ModuleType

import pytest

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
