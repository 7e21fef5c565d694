import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.serving.rendered.repository import render
from tests.support.paths import REPOSITORY

TEMPLATES = REPOSITORY / "model_repository_templates"
VALUES = {
    "name": "demo",
    "engine_folder": "engine",
    "max_batch_size": 4,
    "max_input_tokens": 64,
    "max_sequence_tokens": 128,
    "scheduler": {"num_kv_blocks": 16, "enable_prefix_caching": False},
    "properties": {"KV_CACHE_PRECISION": "f16"},
}


def config(repository, model):
    return text_format.Parse((repository / model / "config.pbtxt").read_text(), ModelConfig())


def test_the_repository_holds_the_streaming_model_and_one_that_asks_it(tmp_path):
    assert render(TEMPLATES, "openvino", VALUES, tmp_path) == ["demo", "demo_whole_answer"]

    demo, front = config(tmp_path, "demo"), config(tmp_path, "demo_whole_answer")
    assert demo.model_transaction_policy.decoupled
    assert not front.model_transaction_policy.decoupled
    assert front.parameters["asks"].string_value == "demo"
    assert demo.parameters["scheduler"].string_value == '{"enable_prefix_caching": false, "num_kv_blocks": 16}'
    assert demo.parameters["chat_template"].string_value == "apply"


def test_both_models_take_the_same_inputs_but_for_the_stream(tmp_path):
    render(TEMPLATES, "openvino", VALUES, tmp_path)

    demo, front = config(tmp_path, "demo"), config(tmp_path, "demo_whole_answer")
    assert [tensor for tensor in demo.input if tensor.name != "stream"] == list(front.input)
    assert list(demo.output) == list(front.output)


@pytest.mark.parametrize("missing", sorted(VALUES.keys() - {"name"}))
def test_a_value_that_is_not_given_is_an_error(tmp_path, missing):
    with pytest.raises(InputError) as caught:
        render(TEMPLATES, "openvino", {k: v for k, v in VALUES.items() if k != missing}, tmp_path)

    assert missing in caught.value.what
