"""The stack's fleet: the demo's model in servers of two shapes, one of which no gate would pass."""

from tests.local.chain.whole_chain import FEW_QUESTIONS, SPEC

NAME = "duo"
REFUSED, LIVE = "duo-cpu-1", "duo-cpu-2"
IMPOSSIBLE = {"metric": "latency_ms", "quantile": 0.95, "at_most": 0.001}


def document():
    """The spec: what comes before a gate is the demo's, so that a release of the demo leaves it stored."""
    expect = [{"metric": "smoke_accuracy", "at_least": 1.0}, {"metric": "error_rate", "at_most": 0.0}]
    gate = {
        "smoke": SPEC["gate"]["smoke"][:1],
        "quality": FEW_QUESTIONS,
        "benchmark": {"concurrency": [1], "requests": 4, "warmup": 0},
        "expect": expect,
    }
    changes = {"name": NAME, "serving": {"shape": ["cpu-1", "cpu-2"]}, "gate": gate}
    return SPEC | changes | {"fleet": {"cpu-1": {"gate": {"expect": [*expect, IMPOSSIBLE]}}}}
