"""The one place that maps an engine kind to the code for it."""

from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.engines.protocol import EngineMaker, EnginePlanner


def planner_for(kind: EngineKind) -> EnginePlanner:
    """The planner of a kind."""
    match kind:
        case "openvino":
            from slipway.tasks.engines.openvino.planner import OpenVinoPlanner

            return OpenVinoPlanner()
        case "trt-engine":
            from slipway.tasks.engines.trtllm.planner import TrtPlanner

            return TrtPlanner()
        case "llmapi":
            from slipway.tasks.engines.huggingface.llmapi import LlmApiPlanner

            return LlmApiPlanner()
        case "vllm":
            from slipway.tasks.engines.huggingface.vllm import VllmPlanner

            return VllmPlanner()


def maker_for(kind: EngineKind) -> EngineMaker:
    """The maker of a kind."""
    match kind:
        case "openvino":
            from slipway.tasks.engines.openvino.maker import OpenVinoMaker

            return OpenVinoMaker()
        case "trt-engine":
            from slipway.tasks.engines.trtllm.maker import TrtMaker

            return TrtMaker()
        case "llmapi":
            from slipway.tasks.engines.huggingface.llmapi import LlmApiMaker

            return LlmApiMaker()
        case "vllm":
            from slipway.tasks.engines.huggingface.vllm import VllmMaker

            return VllmMaker()
