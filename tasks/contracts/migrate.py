"""From a spec of one engine kind to one of another: what is rewritten, and what has no equivalent. Pure."""

import copy
from dataclasses import dataclass
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.spec import FORMATS_BY_ENGINE, ReleaseSpec

FROM, TO = "trt-engine", "llmapi"

NEAREST = {
    "int8_sq": ("int8_wo", "weights in 8 bits, activations in 16: as small, and slower on long prompts"),
    "int4_wo": ("int8_wo", "twice as large; int4_awq is as small and needs quantization.calibration"),
}
"""For a format that the LLM API does not serve: the one that needs nothing else, and what differs."""

UNCALIBRATED = frozenset({"none", "int8_wo"})


@dataclass(frozen=True)
class Migration:
    """A rewritten spec, and what a person should know of it."""

    document: dict[str, Any]
    changes: tuple[str, ...]
    without_equivalent: tuple[str, ...]


def to_llmapi(spec: ReleaseSpec, document: dict[str, Any]) -> Migration:
    """Rewrite a spec of an engine that is built to one that is loaded by TensorRT-LLM's LLM API.

    Args:
        spec: of kind trt-engine.
        document: the same as its file holds it, so that what is not touched stays as it was written.

    Raises:
        InputError: the spec is of another kind.
    """
    if spec.engine.kind != FROM:
        raise InputError(f"{spec.name} has engine.kind {spec.engine.kind}; only {FROM} is migrated to {TO}.")
    migrated = copy.deepcopy(document)
    migrated["engine"]["kind"] = TO
    changes = [
        f"engine.kind: {FROM} → {TO}: nothing is built; the checkpoint of quantize is what is served",
        "quantize runs ModelOpt in an image of its own (images.modelopt of the site), not TensorRT-LLM's script",
    ]
    missing: list[str] = []
    _format(spec, migrated["quantization"], missing)
    _kv_cache(spec, migrated["quantization"], missing)
    _calibration(migrated["quantization"], changes)
    _parallel(spec, missing)
    if spec.serving.image is not None:
        changes.append("serving.image stays: it has to be an image of Triton with TensorRT-LLM for this kind too")
    missing.append("ensemble and tensorrt_llm_bls with their parts: one model of the spec's name answers")
    missing.append("metrics nv_trt_llm_*: the C++ backend's own; scale by Triton's pending requests")
    return Migration(migrated, tuple(changes), tuple(missing))


def _format(spec: ReleaseSpec, quantization: dict[str, Any], missing: list[str]) -> None:
    asked = spec.quantization.format
    if asked in FORMATS_BY_ENGINE[TO]:
        return
    nearest, differs = NEAREST[asked]
    quantization["format"] = nearest
    missing.append(f"quantization.format {asked}: rewritten to {nearest}, {differs}")


def _kv_cache(spec: ReleaseSpec, quantization: dict[str, Any], missing: list[str]) -> None:
    asked = spec.quantization.kv_cache
    if asked == "int8" or (asked == "fp8" and quantization["format"] in UNCALIBRATED):
        quantization["kv_cache"] = "none"
        missing.append(f"quantization.kv_cache {asked}: rewritten to none, which takes twice the room")


def _calibration(quantization: dict[str, Any], changes: list[str]) -> None:
    nobody_looks = quantization["format"] in UNCALIBRATED and quantization.get("kv_cache", "none") == "none"
    if nobody_looks and quantization.pop("calibration", None) is not None:
        changes.append(f"quantization.calibration removed: {quantization['format']} looks at no texts")


def _parallel(spec: ReleaseSpec, missing: list[str]) -> None:
    ranks = spec.engine.tensor_parallel * spec.engine.pipeline_parallel
    if spec.engine.pipeline_parallel > 1:
        missing.append(
            f"pipeline_parallel {spec.engine.pipeline_parallel}: {TO} is served on one node; plan refuses it unless a "
            f"node has {ranks} GPUs"
        )
