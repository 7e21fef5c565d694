"""Rewrites a spec for another engine kind, and lists what has no equivalent there. Pure."""

import copy
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind, kinds_with
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec

TO: EngineKind = "llmapi"

CALIBRATED_INSTEAD = "int4_awq"
"""Replaces a format that the LLM API does not serve when the spec names calibration texts. Every GPU that runs the
other formats runs this one (slipway/tasks/contracts/spec/gpu_formats.py)."""

DIFFERENCE = {
    "int8_wo": "weights of half the size; more accuracy is lost",
    "int8_sq": "weights of half the size, activations in 16 bits; on Ada, Hopper and Blackwell fp8 keeps both in 8",
    "int4_wo": "the same size, with scales chosen on the calibration texts",
}
"""What CALIBRATED_INSTEAD changes, by the format that it replaces."""


@dataclass(frozen=True)
class Migration:
    """A rewritten spec, and what a person should know about it."""

    document: dict[str, Any]
    changes: tuple[str, ...]
    without_equivalent: tuple[str, ...]


def to_llmapi(spec: ReleaseSpec, document: dict[str, Any]) -> Migration:
    """Rewrite a spec of a built engine to one that TensorRT-LLM's LLM API loads.

    Args:
        spec: a spec of kind trt-engine.
        document: the same spec as in its file, so that other fields stay as they were written.

    Raises:
        InputError: the spec is of another kind.
    """
    if spec.engine.traits.migrates_to != TO:
        raise InputError(
            f"engine.kind of {spec.name} cannot be migrated to {TO}",
            found=spec.engine.kind,
            expected=" or ".join(kinds_with("migrates_to", TO)),
            remedy="Write a spec of the other kind by hand.",
        )
    migrated = copy.deepcopy(document)
    migrated["engine"]["kind"] = TO
    changes = [
        f"engine.kind: {spec.engine.kind} → {TO}: nothing is built; quantize's checkpoint is served",
        "quantize runs ModelOpt in its own image (images.modelopt of the site), not TensorRT-LLM's script",
    ]
    missing: list[str] = []
    _format(spec, migrated["quantization"], missing)
    _kv_cache(spec, migrated["quantization"], missing)
    _calibration(migrated["quantization"], changes)
    if spec.serving.image is not None:
        changes.append("serving.image stays: it must be an image of Triton with TensorRT-LLM for this kind too")
    missing.append("ensemble and tensorrt_llm_bls with their parts: one model with the spec's name replaces them")
    missing.append("metrics nv_trt_llm_*: only the C++ backend has them; scale by Triton's pending requests")
    return Migration(migrated, tuple(changes), tuple(missing))


def _format(spec: ReleaseSpec, quantization: dict[str, Any], missing: list[str]) -> None:
    requested = spec.quantization.format
    if requested in ENGINE_KINDS[TO].formats:
        return
    if spec.quantization.calibration is None:
        larger = "four times" if requested == "int4_wo" else "twice"
        quantization["format"] = "none"
        missing.append(
            f"quantization.format {requested}: rewritten to none, {larger} as large; {CALIBRATED_INSTEAD} and fp8 need "
            "quantization.calibration, which the spec does not have"
        )
        return
    quantization["format"] = CALIBRATED_INSTEAD
    missing.append(f"quantization.format {requested}: rewritten to {CALIBRATED_INSTEAD}, {DIFFERENCE[requested]}")


def _kv_cache(spec: ReleaseSpec, quantization: dict[str, Any], missing: list[str]) -> None:
    requested = spec.quantization.kv_cache
    if requested == "int8":
        quantization["kv_cache"] = "none"
        missing.append(f"quantization.kv_cache {requested}: rewritten to none, which takes twice the memory")
    elif requested == "fp8" and quantization["format"] == "none":
        missing.append(
            "scales of quantization.kv_cache fp8: beside weights that are not quantized, "
            f"{TO} stores keys and values with scale 1.0 in place of a calibrated one"
        )


def _calibration(quantization: dict[str, Any], changes: list[str]) -> None:
    if quantization["format"] == "none" and quantization.pop("calibration", None) is not None:
        changes.append("quantization.calibration removed: without quantization no texts are needed")
