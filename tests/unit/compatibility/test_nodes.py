"""How many nodes ranks take."""

import pytest

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused


def nodes_of(kind, tensor, pipeline):
    """On nodes of four GPUs."""
    split = {"tensor_parallel": tensor, "pipeline_parallel": pipeline}
    engine = {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-A10G", **split}
    return ResolvedRelease(spec(engine=engine, quantization={"format": "none"}), gpu_site()).nodes


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi"])
@pytest.mark.parametrize(
    ("tensor", "pipeline", "nodes"), [(1, 1, 1), (4, 1, 1), (2, 2, 1), (4, 2, 2), (2, 4, 2), (1, 12, 3)]
)
def test_ranks_fill_a_part_of_one_node_or_several_whole_ones(kind, tensor, pipeline, nodes):
    assert nodes_of(kind, tensor, pipeline) == nodes


@pytest.mark.parametrize(
    ("tensor", "pipeline", "products"),
    [(3, 2, "4 x 2, 2 x 4, 1 x 8"), (1, 6, "4 x 2"), (8, 1, "4 x 2"), (3, 4, "4 x 3, 2 x 6, 1 x 12")],
)
def test_products_that_no_number_of_nodes_gives_are_refused_with_some_that_do(tensor, pipeline, products):
    with refused(what="evenly over whole nodes", found="4 NVIDIA-A10G on a node", expected=products):
        nodes_of("trt-engine", tensor, pipeline)


def test_what_is_served_on_one_node_is_refused_over_two_with_the_reason():
    with refused(what="vllm is served on one node: nothing starts vLLM's ranks", remedy="trt-engine or llmapi"):
        nodes_of("vllm", 4, 2)
