"""An engine of a group's member in real Triton, over a stand-in that checks GPU ids as TensorRT-LLM's runtime does."""

import pytest

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


def test_an_engine_answers_on_an_id_below_its_gpus_per_node(five):
    assert five.generate(text_input=QUESTION)[1]["text_output"] == ANSWER
    assert 'string_value: "2"' in (five.repository / "demo_tensorrt_llm" / "config.pbtxt").read_text()


def test_an_engine_does_not_load_on_an_id_that_its_node_lacks(start_server, make_topology):
    with pytest.raises(AssertionError, match=r"device ids \[2\] with 1 GPUs per node"):
        start_server(make_topology(gpus_per_node=1, gpus=[2]))
