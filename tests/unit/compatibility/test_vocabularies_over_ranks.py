"""Over how many ranks vLLM divides a vocabulary."""

from tests.fakes.documents.gpu_planning import asked, plan
from tests.support.refused import refused

FORTY_HEADS = {"hidden_size": 5120, "num_attention_heads": 40}


def test_vllm_is_refused_ranks_that_do_not_divide_the_vocabulary():
    phi_4 = {**FORTY_HEADS, "num_key_value_heads": 10, "vocab_size": 100352}

    with refused(what="tensor_parallel 5 does not divide the vocabulary", found="100352 rows", remedy="1, 2, 4 or 8"):
        plan(asked("vllm", tensor_parallel=5), **phi_4)
    plan(asked("llmapi", tensor_parallel=5), **phi_4)


def test_vllm_divides_the_rows_that_it_rounds_a_vocabulary_up_to():
    plan(asked("vllm", tensor_parallel=8), **FORTY_HEADS, num_key_value_heads=8, vocab_size=100301)
