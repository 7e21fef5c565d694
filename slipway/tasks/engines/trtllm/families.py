"""Which models TensorRT-LLM 1.2 makes engines of: those that its converters take, and those that it quantizes. Pure.

Facts are recorded in tests/contracts/convert_checkpoint.yaml and quantize.yaml, with the files that they were read in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.engine import Engine

OTHER_KINDS = "engine kind llmapi or vllm, which load a checkpoint as it is"


@dataclass(frozen=True)
class Converter:
    """A script that converts an unquantized checkpoint, and where its flags differ from those of the others."""

    folder: str
    """Where convert_checkpoint.py is, below the folder of TensorRT-LLM's examples."""
    flags: tuple[str, ...] = ()
    """Flags that it needs besides folders, type and ranks."""
    reads_dtype: bool = True
    """`--dtype auto` takes the type from config.json; otherwise the command names it."""
    tensor_flag: str = "--tp_size"
    tensor: bool = True
    """Splits weights over tensor parallel ranks."""
    pipeline: bool = True
    """Splits layers over pipeline stages."""
    experts: bool = False
    """Shares out the experts of a mixture over ranks, as `--moe_tp_size` and `--moe_ep_size` ask."""

    @property
    def script(self) -> str:
        """Path of the script, below the folder of examples."""
        return f"{self.folder}/convert_checkpoint.py"


LLAMA, QWEN = Converter("models/core/llama", experts=True), Converter("models/core/qwen", experts=True)
# loads the model on GPUs unless told otherwise, and the pod has those of the engine only
GPT = Converter("models/core/gpt", flags=("--load_model_on_cpu",))
GEMMA = Converter(
    "models/core/gemma",
    flags=("--ckpt-type", "hf", "--load_model_on_cpu"),
    tensor_flag="--world-size",
    pipeline=False,
)
PHI = Converter("models/core/phi", pipeline=False)
# the README's support matrix leaves TP empty for them, and load_weights_from_hf_model (models/phi3/convert.py) does
# not split their weights
PHI3 = replace(PHI, tensor=False)
# no experts: the script has the flags, but its weights are split by tp_size in place of moe_tp_size
# (tensorrt_llm/models/deepseek_v2/convert.py @ 130232d9, load_weights_from_hf_model)
DEEPSEEK_V2 = Converter("models/contrib/deepseek_v2", reads_dtype=False)

CONVERTERS: Mapping[str, Converter] = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "MixtralForCausalLM": LLAMA,
    "Qwen2ForCausalLM": QWEN,
    "Qwen2MoeForCausalLM": QWEN,
    "Qwen3ForCausalLM": QWEN,
    "Qwen3MoeForCausalLM": QWEN,
    "GemmaForCausalLM": GEMMA,
    "Gemma2ForCausalLM": GEMMA,
    "Gemma3ForCausalLM": GEMMA,
    "PhiForCausalLM": PHI,
    "Phi3ForCausalLM": PHI3,
    "GPT2LMHeadModel": GPT,
    "Starcoder2ForCausalLM": GPT,
    "NemotronForCausalLM": GPT,
    "DeepseekV2ForCausalLM": DEEPSEEK_V2,
}
"""Converters by the architecture in config.json."""

QUANTIZED = frozenset(
    {
        *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
        *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
        *("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Phi3ForCausalLM"),
        *("GPT2LMHeadModel", "GPTJForCausalLM", "Starcoder2ForCausalLM", "NemotronForCausalLM"),
        *("BloomForCausalLM", "FalconForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM"),
    }
)
"""Architectures that quantize.py loads as such, whose model type it knows, and that trtllm-build takes. Of a model of
another type quantize.py says `Unknown model type`, goes on, and fails in its export, hours later."""


def architecture_of(config: Mapping[str, Any]) -> str:
    """The model's class, as config.json names it."""
    return str((config.get("architectures") or ["none"])[0])


def converter_of(architecture: str) -> Converter:
    """The script that converts an unquantized checkpoint.

    Raises:
        InputError: none is known for the architecture.
    """
    if architecture not in CONVERTERS:
        raise InputError(
            "trt-engine cannot convert this architecture",
            found=architecture,
            expected=f"one of {', '.join(sorted(CONVERTERS))}",
            remedy=f"Choose a model of one of these, or {OTHER_KINDS}.",
        )
    return CONVERTERS[architecture]


def check_converted(architecture: str, engine: Engine) -> None:
    """Refuse ranks over which the architecture's script does not split weights.

    Raises:
        InputError: the parallelism, and what would work; or no script is known for the architecture.
    """
    converter = converter_of(architecture)
    for field, ranks, splits in (
        ("tensor_parallel", engine.tensor_parallel, converter.tensor),
        ("pipeline_parallel", engine.pipeline_parallel, converter.pipeline),
        ("expert_parallel", engine.expert_parallel, converter.experts),
    ):
        if ranks > 1 and not splits:
            raise InputError(
                f"engine.{field} {ranks}: TensorRT-LLM's {converter.script} does not split weights of {architecture} "
                "this way",
                expected="1",
                remedy=f"Set {field} to 1, or choose {OTHER_KINDS}.",
            )


def check_quantized(architecture: str, format_: str) -> None:
    """Refuse an architecture of which TensorRT-LLM's quantize.py makes no checkpoint.

    Raises:
        InputError: the architecture, and those that it knows.
    """
    if architecture not in QUANTIZED:
        converted = " (quantization.format none converts it without)" if architecture in CONVERTERS else ""
        raise InputError(
            "TensorRT-LLM's quantize.py and trtllm-build do not both know this architecture, so trt-engine cannot make "
            f"{format_} of it{converted}",
            found=architecture,
            expected=f"one of {', '.join(sorted(QUANTIZED))}",
            remedy=f"Choose a model of one of these, or {OTHER_KINDS}.",
        )
