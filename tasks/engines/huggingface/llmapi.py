"""Engine kind `llmapi`: a checkpoint quantized by ModelOpt, loaded by TensorRT-LLM's LLM API. Nothing is built."""

from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from tasks.contracts.spec import ReleaseSpec
from tasks.engines.huggingface.checkpoint_maker import CheckpointMaker, checkpoint_values
from tasks.engines.huggingface.checkpoint_planner import CheckpointPlanner
from tasks.engines.preflight.gpu import COMMON, PREFIX_CACHING
from tasks.engines.preflight.memory_fit import batched_tokens


class LlmApiPlanner(CheckpointPlanner):
    """Plans checkpoints for the LLM API."""

    runtime: ClassVar[str] = "tensorrt_llm"
    options: ClassVar = {**COMMON, "prefix_caching": PREFIX_CACHING}


class LlmApiMaker(CheckpointMaker):
    """Makes checkpoints for the LLM API."""

    @override
    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Values that build recorded; `options` are further fields of LLM()."""
        return {
            **checkpoint_values(engine_dir, spec),
            "prefix_caching": spec.engine.options.get("prefix_caching", True),
            "options": {"max_num_tokens": batched_tokens(spec), "trust_remote_code": False},
        }
