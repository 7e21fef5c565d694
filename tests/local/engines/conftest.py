"""The demo model, and real Triton where it is installed."""

import pytest

from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.registry import maker_for
from tests.local.engines.demo_model import dataset, demo_spec, tritonserver
from tests.support.made_once import models_traced_once, tokenizers_converted_once
from tests.support.paths import HUB

__all__ = ["models_traced_once", "tokenizers_converted_once", "tritonserver"]


@pytest.fixture(scope="session")
def checkpoint():
    return HUB / "slipway" / "demo-llama" / "v1"


@pytest.fixture(scope="session")
def quantized(checkpoint, tmp_path_factory):
    """By format: folder and metrics of the demo model, each made once."""
    made = {}
    texts = [line["text"] for line in dataset("perplexity")]

    def of(weights, kv_cache="none"):
        if (weights, kv_cache) not in made:
            out = tmp_path_factory.mktemp(f"quantized-{weights}-{kv_cache}")
            # a cache's format changes no weight, so its engine is not measured again
            measured = Texts(perplexity=texts if kv_cache == "none" else [])
            asked = demo_spec(weights, kv_cache)
            made[weights, kv_cache] = (out, maker_for("openvino").quantize(checkpoint, asked, out, measured))
        return made[weights, kv_cache]

    return of


@pytest.fixture(scope="session")
def engine_dir(quantized, tmp_path_factory):
    """By format: folder of the demo's engine, each built once."""
    built = {}

    def of(weights, kv_cache="none"):
        if (weights, kv_cache) not in built:
            out = tmp_path_factory.mktemp(f"engine-{weights}-{kv_cache}")
            maker_for("openvino").build(quantized(weights, kv_cache)[0], demo_spec(weights, kv_cache), out)
            built[weights, kv_cache] = out
        return built[weights, kv_cache]

    return of
