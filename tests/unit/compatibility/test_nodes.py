"""How many nodes ranks take."""

import pytest

from tasks.contracts.compatibility import nodes_of
from tasks.contracts.errors import InputError
from tasks.contracts.site import Gpu

FOUR = Gpu(memory_gib=22.5, per_node=4, architecture="sm_86")


@pytest.mark.parametrize(
    ("tensor", "pipeline", "nodes"), [(1, 1, 1), (4, 1, 1), (2, 2, 1), (4, 2, 2), (2, 4, 2), (1, 12, 3)]
)
def test_ranks_fill_a_part_of_one_node_or_several_whole_ones(tensor, pipeline, nodes):
    assert nodes_of("trt-engine", tensor, pipeline, "NVIDIA-A10G", FOUR) == nodes


@pytest.mark.parametrize(("tensor", "pipeline"), [(3, 2), (1, 6), (8, 1), (3, 4)])
def test_products_that_no_number_of_nodes_gives_are_refused_with_some_that_do(tensor, pipeline):
    with pytest.raises(InputError, match=r"no number of whole nodes gives this.*4 x \d, 2 x \d, 1 x \d+\."):
        nodes_of("trt-engine", tensor, pipeline, "NVIDIA-A10G", FOUR)


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_what_is_served_on_one_node_is_refused_over_two(kind):
    with pytest.raises(InputError, match=f"{kind} is served on one node"):
        nodes_of(kind, 4, 2, "NVIDIA-A10G", FOUR)
