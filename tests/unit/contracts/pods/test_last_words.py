"""What a message quotes of a server that ended."""

from slipway.tasks.contracts.pods.last_words import QUOTED_CHARS, last_words

TRITON = [
    'E1127 00:50:05.117 11061 server.cc:241] "CudaDriverHelper has not been initialized."',
    "E1127 00:50:27.035 11061 model_lifecycle.cc:642] failed to load 'demo' version 1: no such folder",
    *(f"| option {number:02} | value |" for number in range(40)),
    'I1127 00:50:27.042 11061 server.cc:345] "Timeout 130: Found 0 live models"',
    "error: creating server: Internal - failed to load all models",
]


def test_a_server_that_prints_tables_after_its_error_is_quoted_with_the_error():
    said = last_words(TRITON)

    assert "no such folder" in said
    assert said.endswith("error: creating server: Internal - failed to load all models")
    assert "CudaDriverHelper" not in said


def test_the_end_of_a_log_without_errors_is_quoted_on_one_line():
    assert last_words(["starting", "  no space left on device "]) == "starting no space left on device"
    assert last_words([]) == ""


def test_no_quotation_is_longer_than_a_message_bears():
    for lines in ([f"E1127 {'x' * 999}"] * 9, ["x" * 999] * 9):
        assert len(last_words(lines)) <= QUOTED_CHARS + len(" | ")
