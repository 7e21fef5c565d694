"""Candidates that are never ready, answer nonsense, or become slow once they have passed their smoke test."""

import json

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.local.faults.model import SMOKE, UNAVAILABLE

TOKENIZER = Tokenizer(WordLevel({"?": 0}, unk_token="?")).to_str()
RIGHT = {"metric": "smoke_accuracy", "at_least": 1.0}
AS_FAST = {"metric": "latency_ms", "quantile": 0.5, "at_most_ratio": 4.0, "of": "live"}
LOAD = {"concurrency": [2], "requests": 24, "warmup": 2}


def measured(model, temper, *steps, **gate):
    """A candidate that was measured by these steps, and what its gate says."""
    made = model.version(temper, live=model.live, gate={"smoke": [SMOKE], **gate})
    model.write_artifact("build", made, "tokenizer.json", TOKENIZER.encode())
    model.steps(made, "roll-out", *steps, "gate")
    return made, model.workspace.documents.result(made, "gate").data


def test_a_candidate_that_is_never_ready_is_removed(model):
    before, new = model.live, model.version("unready")

    assert model.step("roll-out", new) == UNAVAILABLE
    assert model.answers() == before
    model.steps(new, "roll-back")

    model.assert_whole(before, ("refused", new.id))


def test_a_candidate_that_answers_nonsense_is_refused_and_a_good_one_is_not(model):
    before = model.live
    bad, judged = measured(model, "nonsense", "smoke-test", expect=[RIGHT])
    assert judged["verdict"] == "failed"
    assert [line for line in judged["refused"] if "smoke_accuracy" in line]
    model.steps(bad, "roll-back")
    model.assert_whole(before, ("refused", bad.id))

    good, judged = measured(model, "good", "smoke-test", expect=[RIGHT])
    assert judged["verdict"] == "passed", json.dumps(judged["refused"])
    model.steps(good, "promote")
    model.assert_whole(good.id, ("promoted", good.id), ("refused", bad.id))


def test_a_candidate_that_is_slow_only_after_its_smoke_test_is_refused(model):
    before = model.live
    slow, judged = measured(model, "tiring", "smoke-test", "benchmark", expect=[RIGHT, AS_FAST], benchmark=LOAD)

    assert model.workspace.documents.result(slow, "smoke-test").data["smoke_right"] == 1
    assert judged["verdict"] != "passed"  # beside a busy machine's live release the interval may reach the limit
    assert [each for each in judged["refused"] if "latency_ms" in each]
    assert model.answers() == before
    model.steps(slow, "roll-back")

    model.assert_whole(before, ("refused", slow.id))
