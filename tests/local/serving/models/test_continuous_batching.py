import itertools
import json
import time

from tests.local.serving.triton_server import RunningAnswer, together
from tests.support.paths import HUB

QUESTIONS = HUB / "datasets/slipway/demo-questions/v1/eval.jsonl"
LONG = {"text_input": "Tell me everything.", "temperature": 8.0, "max_tokens": 240}


def test_sixteen_at_once_all_get_their_own_right_answer(server):
    pairs = [json.loads(line) for line in QUESTIONS.read_text().splitlines()[:16]]

    answers = together(16, lambda number: server.generate(text_input=pairs[number]["prompt"])[1])

    assert [answer["text_output"] for answer in answers] == [pair["answer"] for pair in pairs]


def test_sixteen_streams_run_side_by_side(server):
    def arrivals(seed):
        return [(time.monotonic(), seed) for _ in server.stream(**LONG, min_tokens=LONG["max_tokens"], seed=seed)]

    streams = [seed for _, seed in sorted(itertools.chain(*together(16, arrivals)))]

    # one after the other they would change 15 times
    assert sum(one != other for one, other in itertools.pairwise(streams)) > 5 * 16


def test_a_short_question_overtakes_a_long_answer(long_server):
    with RunningAnswer(long_server, **{**LONG, "max_tokens": 15_000}, seed=1) as long:

        def ask():
            status, body = long_server.generate(text_input="What is the capital of France?", max_tokens=9)
            assert (status, body["text_output"]) == (200, "The capital of France is Paris.")

        assert long.outlasts(ask)


def test_more_requests_than_slots_wait_and_are_served(long_server):
    asked = {"text_input": "What is the capital of France?", "max_tokens": 9}

    answers = together(8, lambda _: long_server.generate(**asked)[1])

    assert {answer["text_output"] for answer in answers} == {"The capital of France is Paris."}
