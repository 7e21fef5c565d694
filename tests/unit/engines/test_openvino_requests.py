"""What the openvino engine takes, refuses, estimates and hands to its template."""

import json

import pytest

from slipway.tasks.contracts.fit.resolution import resolve
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.plan import HubFile, Source
from slipway.tasks.engines.openvino.build import check_precision, properties, scheduler_settings
from slipway.tasks.engines.openvino.maker import OpenVinoMaker
from slipway.tasks.engines.openvino.planner import OpenVinoPlanner
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

GIB = 2**30
SHAPE = {"cpu": "2", "memory": "4Gi", "scratch": "4Gi"}


def source(weights_bytes=100):
    sizes = {"model.safetensors": weights_bytes, "config.json": 1, "tokenizer.json": 1}
    files = tuple(
        HubFile(path=path, digest="sha256:" + "c" * 64, size_bytes=size_bytes) for path, size_bytes in sizes.items()
    )
    return Source(repo="org/model", revision="main", commit="b" * 40, files=files)


def site(**serving_images):
    return Site.model_validate(
        {
            "apiVersion": "slipway/v1",
            "kind": "Site",
            "name": "here",
            "object_store": {"bucket": "slipway"},
            "images": {"tasks": "tasks:1", "serving": serving_images},
            "shapes": dict.fromkeys(("small", "transfer", "compute", "serving"), SHAPE),
        }
    )


def asked(**changes):
    engine = {**SPEC["engine"], **changes.pop("engine", {})}
    return spec(engine=engine, **changes)


def check(spec, **documents):
    OpenVinoPlanner().check(resolve(spec, site(openvino="triton:1")), source(), documents)


def check_config(**config):
    check(asked(), **{"config.json": config})


def test_the_demo_is_taken():
    check(asked())


@pytest.mark.parametrize("model_type", ["llama", "gemma2", "gemma3_text"])
def test_a_model_that_can_be_exported_is_taken(model_type):
    check_config(model_type=model_type, architectures=["AnyForCausalLM"])


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"model_type": "deepseek_v2"}, "deepseek_v2, which optimum-intel exports with transformers up to 4.53.3 only"),
        ({"model_type": "no-such-model"}, "model_type no-such-model"),
        ({}, "model_type None"),
    ],
)
def test_a_model_that_cannot_be_exported_is_refused_before_the_download(config, found):
    with refused(what="openvino cannot serve org/model@main", found=found, expected="gemma2"):
        check_config(**config)


def test_a_model_of_several_parts_is_refused_before_the_download():
    with refused(
        what="org/model@main cannot be quantized to int8 for openvino", found="Gemma3ForConditionalGeneration"
    ):
        check_config(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], vision_config={"a": 1})


def test_a_cache_in_8_bit_floats_is_refused():
    with refused(what="quantization.kv_cache", found="fp8"):
        check(asked(quantization={"format": "int8", "kv_cache": "fp8"}))


def test_calibration_that_nobody_would_read_is_refused():
    quantization = {"format": "int4", "calibration": {"dataset": "hf://datasets/org/texts@main/a.jsonl"}}

    with refused(what="quantization.calibration"):
        check(asked(quantization=quantization))


@pytest.mark.parametrize("options", [{"threads": 2}, {"prefix_caching": True}, {"threads": 1, "prefix_caching": False}])
def test_known_options_are_taken(options):
    check(asked(engine={"options": options}))


@pytest.mark.parametrize(
    "options", [{"treads": 2}, {"threads": 0}, {"threads": True}, {"threads": "2"}, {"prefix_caching": 1}]
)
def test_unknown_options_and_values_are_refused(options):
    with refused(what="engine.options.", expected="threads"):
        check(asked(engine={"options": options}))


def test_a_site_without_a_serving_image_is_refused():
    with refused(what="site here names no serving image for openvino", remedy="images.serving.openvino"):
        resolve(asked(), site())


def test_a_serving_image_of_the_spec_stands_in_for_the_sites():
    assert resolve(asked(serving={"image": "triton:own"}), site()).serving.image == "triton:own"


def test_the_estimate_grows_with_the_weights():
    small, large = (OpenVinoPlanner().estimate(asked(), source(size * GIB)) for size in (1, 3))

    assert large.download_bytes - small.download_bytes == 2 * GIB
    assert large.scratch_bytes - small.scratch_bytes == 8 * GIB
    assert large.memory_bytes - small.memory_bytes == 10 * GIB


def test_keys_depend_on_images_and_on_toolkit_versions():
    producers = OpenVinoPlanner().producers(resolve(asked(), site(openvino="triton:1")))

    assert producers["quantize"]["image"] == "tasks:1"
    assert {"nncf", "optimum-intel", "torch", "openvino"} < producers["quantize"].keys()
    assert {"openvino-genai", "openvino-tokenizers"} < producers["build"].keys()
    assert producers["assemble"] == {"image": "triton:1"}


def test_the_cache_has_room_for_every_sequence_at_its_full_length():
    settings = scheduler_settings(
        asked(engine={"max_batch_size": 3, "max_input_tokens": 10, "max_sequence_tokens": 65})
    )

    assert settings["max_num_seqs"] == 3
    assert settings["num_kv_blocks"] == 3 * 3


def test_a_step_of_the_scheduler_can_hold_a_token_of_every_sequence():
    assert scheduler_settings(asked(engine={"max_batch_size": 2000}))["max_num_batched_tokens"] == 2000


def test_threads_reach_the_plugin_only_when_asked():
    assert properties(asked(), "f16") == {"KV_CACHE_PRECISION": "f16"}
    assert properties(asked(engine={"options": {"threads": 3}}), "u8")["INFERENCE_NUM_THREADS"] == 3


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [("none", {"f16": 0.99, "f32": 0.01}), ("int8", {"u8": 0.99, "f16": 0.01}), ("int4", {"u4": 0.3, "u8": 0.7})],
)
def test_an_engine_of_the_asked_precision_is_taken(quantization, weights):
    check_precision({"weights": weights, "kv_cache": "f16"}, asked(quantization={"format": quantization}))


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [
        ("none", {"f32": 1.0}),
        ("int8", {"f16": 1.0}),
        ("int8", {"u8": 0.5, "f16": 0.5}),
        ("int4", {"u8": 1.0}),
        ("int4", {"u4": 0.5, "f16": 0.5}),
        ("int4", {}),
    ],
)
def test_an_engine_of_another_precision_is_refused(quantization, weights):
    with refused(what=f"weights are not {quantization}"):
        check_precision({"weights": weights, "kv_cache": "f16"}, asked(quantization={"format": quantization}))


def test_an_engine_with_another_cache_is_refused():
    with refused(what="KV cache", found="f16", expected="u8"):
        check_precision(
            {"weights": {"u8": 1.0}, "kv_cache": "f16"}, asked(quantization={"format": "int8", "kv_cache": "int8"})
        )


@pytest.mark.parametrize(("has_chat_template", "expected"), [(True, "apply"), (False, "none")])
def test_templates_are_filled_from_what_was_read_back(tmp_path, has_chat_template, expected):
    description = {
        "chat_template": has_chat_template,
        "limits": {"max_batch_size": 8, "max_input_tokens": 128, "max_sequence_tokens": 256},
        "scheduler": {"num_kv_blocks": 64},
        "properties": {"KV_CACHE_PRECISION": "f16"},
        "versions": {"openvino": "1"},
    }
    (tmp_path / "engine.json").write_text(json.dumps(description))

    values = OpenVinoMaker().template_values(tmp_path, asked())

    assert values["name"] == "demo"
    assert values["engine_folder"] == "engine"
    assert values["chat_template"] == expected
    assert values["max_sequence_tokens"] == 256
    assert values["scheduler"] == {"num_kv_blocks": 64}
