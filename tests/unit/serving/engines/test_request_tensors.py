import importlib.util

import numpy as np
import pytest
from generation.requests.question import Job
from generation.runtime import Controls, Sampling

from tests.support.paths import REPOSITORY

FILE = REPOSITORY / "model_repository_templates/trt-engine/model_preprocessing/1/request_tensors.py"
spec = importlib.util.spec_from_file_location("request_tensors", FILE)
request_tensors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(request_tensors)


def tensors(sampling=None, *, end_ids=(9,), stop_words=()):
    return request_tensors.request_tensors(Job((1, 2, 3), sampling or Sampling(5), False), end_ids, 8, stop_words)


def test_a_request_is_a_batch_of_one():
    made = tensors()

    assert made["input_ids"].tolist() == [[1, 2, 3]]
    assert {
        name: value.tolist() for name, value in made.items() if name in {"input_lengths", "request_output_len"}
    } == {
        "input_lengths": [[3]],
        "request_output_len": [[5]],
    }
    assert (made["end_id"].tolist(), made["pad_id"].tolist()) == ([[9]], [[8]])


def test_greedy_is_top_k_1_at_a_temperature_that_the_backend_takes():
    made = tensors(Sampling(5, temperature=0.0))

    assert (made["runtime_top_k"].item(), made["runtime_top_p"].item(), made["temperature"].item()) == (1, 1.0, 1.0)


def test_a_warm_request_takes_its_seed_or_a_new_one_each_time():
    assert tensors(Sampling(5, temperature=0.5, seed=2**63))["seed"].item() == 2**63
    assert tensors(Sampling(5, temperature=0.5))["seed"] != tensors(Sampling(5, temperature=0.5))["seed"]
    assert tensors(Sampling(5, temperature=0.5))["runtime_top_k"].item() == 0


def test_ends_beyond_the_first_are_stop_words_of_one_token():
    assert tensors(end_ids=(9, 7), stop_words=[[4, 5, 6]])["stop_words_list"].tolist() == [
        [[7, 4, 5, 6], [1, 4, -1, -1]]
    ]


def test_no_stop_words_are_an_empty_list():
    found = tensors()["stop_words_list"]

    assert (found.shape, found.dtype) == ((1, 2, 0), np.int32)


@pytest.mark.parametrize("words", [[[4], [5, 6]], [[4], [], [5, 6]]])
def test_ends_of_words_add_up(words):
    assert request_tensors.word_list(words).tolist() == [[[4, 5, 6], [1, 3, -1]]]


def test_controls_reach_the_backend_by_its_names():
    made = tensors(Sampling(5, temperature=0.5, controls=Controls(0.5, 3, 2, 0.5, 0.25, 1.5, logprobs=0)))
    found = {name: made[name].item() for name in ("runtime_top_p", "runtime_top_k", "min_tokens", "return_log_probs")}
    penalties = [made[f"{name}_penalty"].item() for name in ("presence", "frequency", "repetition")]

    assert found == {"runtime_top_p": 0.5, "runtime_top_k": 3, "min_tokens": 2, "return_log_probs": True}
    assert penalties == [0.5, 0.25, 1.5]


def test_without_controls_the_backend_gets_its_own_defaults():
    made = tensors(Sampling(5, temperature=0.5))
    found = [made[name].item() for name in ("runtime_top_p", "runtime_top_k", "min_tokens", "return_log_probs")]

    assert found == [1.0, 0, 1, False]
    assert made["bad_words_list"].tolist() == [[[0], [-1]]]


def test_bad_words_are_a_list_like_stop_words():
    made = request_tensors.request_tensors(Job((1,), Sampling(5), False), (7,), 8, [], [[4, 5], [6]])

    assert made["bad_words_list"].tolist() == [[[4, 5, 6], [2, 3, -1]]]
