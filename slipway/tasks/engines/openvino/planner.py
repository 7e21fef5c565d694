"""Engine kind `openvino` in plan: weights compressed by NNCF, served on CPU by OpenVINO GenAI's continuous batching."""

from collections.abc import Sequence
from importlib.metadata import version

from typing_extensions import override

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import Stage
from slipway.tasks.contracts.stored.plan import Estimate, Source
from slipway.tasks.engines.checkpoint.files import CONFIG, check_files, check_layout
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.openvino.families import check_stateless, check_traced
from slipway.tasks.engines.preflight.chat import chat_template_of
from slipway.tasks.engines.preflight.hub_metadata import Documents, check_causal, quantization_of
from slipway.tasks.engines.preflight.known_classes import check_generates
from slipway.tasks.engines.protocol import EnginePlanner

QUANTIZE_TOOLS = ("torch", "transformers", "optimum-intel", "nncf", "openvino")
BUILD_TOOLS = ("openvino", "openvino-genai", "openvino-tokenizers", "transformers")

SWITCHES = ("prefix_caching", "prompt_logprobs")
OPTIONS = {"threads": "1 or more, one when absent", **dict.fromkeys(SWITCHES, "true or false")}
"""engine.options of this kind: inference threads, whether prompts that begin alike share their cache, and whether the
weights are loaded a second time for log-probabilities of prompts."""

FP32_RATIO = 2
"""Bytes of the traced graph per byte of a 16-bit checkpoint."""

MEMORY_RATIO = 5
"""Bytes of memory per byte of a 16-bit checkpoint: 32-bit weights in torch and in the graph, and what compression adds.
Measured for quantize: 4.5 with 254 million parameters."""

TOOLKIT_BYTES = 768 * 2**20
"""Resident set of torch, transformers, optimum-intel and NNCF with an almost empty model; measured: 615 MiB."""


class OpenVinoPlanner(EnginePlanner):
    """Plans releases that are served on CPU."""

    @override
    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        spec = release.spec
        check_files(source)
        check_layout(source)
        check_limits(spec, documents.get(CONFIG, {}))
        _check_options(spec)
        chat_template_of(spec, documents)
        if method := quantization_of(documents):
            raise InputError(
                f"{source.name} is already quantized",
                found=method,
                expected="16-bit or 32-bit weights, which openvino traces",
                remedy="Choose the unquantized model; quantization.format compresses it.",
            )
        if CONFIG in documents:
            what = f"{source.name}"
            check_generates(documents[CONFIG], what)
            check_causal(documents[CONFIG], what, f"{spec.quantization.format} for openvino")
            check_traced(documents[CONFIG], what)
            check_stateless(documents[CONFIG], what)
        if spec.quantization.kv_cache == "fp8":
            raise InputError(
                "openvino does not support this quantization.kv_cache",
                found="fp8",
                expected="none (16 bit) or int8",
                remedy="Choose one of these.",
            )
        if spec.quantization.calibration is not None:
            raise InputError(
                "quantization.calibration has no effect with openvino, which compresses weights without texts",
                remedy="Remove it; gate.quality.perplexity measures what the compression costs.",
            )

    @override
    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Estimate quantize, the most demanding step.

        Scratch holds the checkpoint, the 32-bit graph, and the compressed one, which is no larger than the checkpoint.
        Weights are assumed to be 16-bit: the Hub lists sizes, not types.
        """
        weights = sum(file.size_bytes for file in source.files if file.path.endswith(".safetensors"))
        return Estimate(
            download_bytes=source.size_bytes,
            scratch_bytes=2 * source.size_bytes + FP32_RATIO * weights,
            memory_bytes=TOOLKIT_BYTES + MEMORY_RATIO * weights,
        )

    @override
    def producers(self, release: ResolvedRelease) -> dict[Stage, dict[str, str]]:
        return {
            "quantize": {"image": release.site.images.tasks, **_versions(QUANTIZE_TOOLS)},
            "build": {"image": release.site.images.tasks, **_versions(BUILD_TOOLS)},
            "assemble": {"image": release.engine_image},
        }


def _check_options(spec: ReleaseSpec) -> None:
    for name, value in spec.engine.options.items():
        match name, value:
            case (switch, bool()) if switch in SWITCHES:
                pass
            case ("threads", int()) if value is not True and value is not False and value >= 1:
                pass
            case _:
                raise InputError(
                    f"engine.options.{name} does not exist or takes other values",
                    found=repr(value),
                    expected=", ".join(f"{known} ({expected})" for known, expected in OPTIONS.items()),
                    remedy="Correct or remove it.",
                )


def _versions(tools: Sequence[str]) -> dict[str, str]:
    return {tool: version(tool) for tool in tools}
