"""From an engine's kind to the one module that knows it."""

from tasks.contracts.spec import EngineKind
from tasks.engines.protocol import Engine


def engine_for(kind: EngineKind) -> Engine:
    """The engine of a kind."""
    match kind:
        case "openvino":
            from tasks.engines.openvino import OpenVinoEngine

            return OpenVinoEngine()
        case "trt-engine":
            from tasks.engines.trt_engine import TrtEngine

            return TrtEngine()
        case "llmapi":
            from tasks.engines.llmapi import LlmApiEngine

            return LlmApiEngine()
        case "vllm":
            from tasks.engines.vllm import VllmEngine

            return VllmEngine()
