"""Engine kind `llmapi`: a checkpoint quantized by ModelOpt, loaded by TensorRT-LLM's LLM API. Nothing is built."""

from pathlib import Path
from typing import Any, ClassVar

from tasks.contracts.spec import EngineKind, ReleaseSpec
from tasks.engines.gpu_options import COMMON, PREFIX_CACHING
from tasks.engines.hf_checkpoint import CheckpointEngine, checkpoint_values
from tasks.engines.memory import batched_tokens


class LlmApiEngine(CheckpointEngine):
    """See tasks/engines/protocol.py for what each method promises."""

    kind: EngineKind = "llmapi"
    runtime: ClassVar[str] = "tensorrt_llm"
    options: ClassVar = {**COMMON, "prefix_caching": PREFIX_CACHING}

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """From what build wrote down; `options` are further fields of LLM()."""
        return {
            **checkpoint_values(engine_dir, spec),
            "prefix_caching": spec.engine.options.get("prefix_caching", True),
            "options": {"max_num_tokens": batched_tokens(spec), "trust_remote_code": False},
        }
