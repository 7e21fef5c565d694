"""What TensorRT-LLM's Triton backend takes, by the names of its inputs, for one request. Computes only.

Names, types and shapes: NVIDIA/TensorRT-LLM, triton_backend/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt,
commit 2a9abd95 (1.2); every shape begins with a batch of one.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from generation.requests.question import Job

Array = np.ndarray[Any, Any]

GREEDY_TOP_K, ANY_TOP_P = 1, 1.0
SEED_BITS = 63
NO_WORDS = np.array([[[0], [-1]]], dtype=np.int32)
"""As NVIDIA's own preprocessing model writes an empty list."""


def request_tensors(
    job: Job,
    end_ids: Sequence[int],
    pad_id: int,
    stop_words: Sequence[Sequence[int]],
    bad_words: Sequence[Sequence[int]] = (),
) -> dict[str, Array]:
    """Inputs of the tensorrt_llm model.

    Temperature 0 is greedy, which the backend knows as top-k 1: its temperature is above 0. A warmer request without a
    seed gets a random one, because the backend's own is always the same.

    Args:
        job: what to generate.
        end_ids: the first one ends the answer by itself, the others as stop words of one token.
        pad_id: what fills up a batch.
        stop_words: ids of each text that ends the answer.
        bad_words: ids of each text that the answer does not contain.
    """
    sampling, controls = job.sampling, job.sampling.controls
    greedy = sampling.temperature == 0
    seed = secrets.randbits(SEED_BITS) if sampling.seed is None else sampling.seed
    return {
        "input_ids": np.array([job.prompt], dtype=np.int32),
        "input_lengths": _one(len(job.prompt), np.int32),
        "request_output_len": _one(sampling.max_tokens, np.int32),
        "end_id": _one(end_ids[0], np.int32),
        "pad_id": _one(pad_id, np.int32),
        "stop_words_list": word_list([*([each] for each in end_ids[1:]), *stop_words]),
        "bad_words_list": word_list(bad_words) if bad_words else NO_WORDS,
        "runtime_top_k": _one(GREEDY_TOP_K if greedy else controls.top_k, np.int32),
        "runtime_top_p": _one(ANY_TOP_P if greedy else controls.top_p, np.float32),
        "temperature": _one(1.0 if greedy else sampling.temperature, np.float32),
        "seed": _one(0 if greedy else seed, np.uint64),
        "min_tokens": _one(max(1, controls.min_tokens), np.int32),
        "presence_penalty": _one(controls.presence_penalty, np.float32),
        "frequency_penalty": _one(controls.frequency_penalty, np.float32),
        "repetition_penalty": _one(controls.repetition_penalty, np.float32),
        "return_log_probs": _one(controls.logprobs is not None, np.bool_),
        **(_guide(controls.grammar) if controls.grammar else {}),
    }


def word_list(words: Sequence[Sequence[int]]) -> Array:
    """Words as the backend wants them, of shape [1, 2, n]: all ids in a row, and where each word ends, then -1."""
    ids = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words if word], dtype=np.int32)
    rows = np.full((2, len(ids)), -1, dtype=np.int32)
    rows[0, :] = ids
    rows[1, : len(ends)] = ends
    return rows[np.newaxis]


def _guide(grammar: str) -> dict[str, Array]:
    """What the answer obeys; triton_backend/inflight_batcher_llm/src/utils.cc (19290813) names the types of guides."""
    texts = {"guided_decoding_guide_type": "ebnf_grammar", "guided_decoding_guide": grammar}
    return {name: np.array([[text.encode()]], dtype=object) for name, text in texts.items()}


def _one(value: float, dtype: type) -> Array:
    return np.array([[value]], dtype=dtype)
