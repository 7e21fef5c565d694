"""NVIDIA's names of formats, as TensorRT-LLM's engines and ModelOpt's checkpoints record them."""

from slipway.tasks.contracts.engine.engine_kinds import QuantizationFormat

QUANT_ALGO: dict[QuantizationFormat, str | None] = {
    "none": None,
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "fp8": "FP8",
    "nvfp4": "NVFP4",
}
"""`quant_algo` by the format in a spec, for those that are written before a server loads them:
tensorrt_llm/quantization/mode.py, QuantAlgo; and, for those that ModelOpt 0.47 makes, hf_quant_config.json
(modelopt/torch/export/model_config.py)."""

KV_QUANT_ALGO: dict[str, str | None] = {"none": None, "fp8": "FP8", "int8": "INT8"}
"""`kv_cache_quant_algo` by the KV cache in a spec."""
