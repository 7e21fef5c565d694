"""An engine of a group's member in real Triton, over a stand-in that checks GPU ids as TensorRT-LLM's runtime does."""

import pytest

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


def test_an_engine_answers_on_an_id_below_its_gpus_per_node(start_server, make_topology):
    server = start_server(make_topology(gpus_per_node=3, gpus=[2]))

    assert server.generate(text_input=QUESTION)[1]["text_output"] == ANSWER
    server.end()


def test_an_engine_does_not_load_on_an_id_that_its_node_lacks(start_server, make_topology):
    with pytest.raises(AssertionError, match=r"device ids \[2\] with 1 GPUs per node"):
        start_server(make_topology(gpus_per_node=1, gpus=[2]))
