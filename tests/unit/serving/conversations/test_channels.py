"""Answers of gpt-oss: a client sees the final channel only, whole or streamed, whatever the prompt ends with."""

import json

import pytest
from generation.model_files.channels import harmony_of
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.requests.question import Job
from generation.running.scheduler import Scheduler
from generation.runtime import Sampling
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from tests.fakes.servers.generation_runtime import FakeRuntime, RecordedReply

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
WORDS = ("?", "assistant", "user", "analysis", "commentary", "final", "json", "2", "+", "=", "4", ".", "adds", " to=f")
PROMPT = "<|start|>user<|message|>2+2?<|end|><|start|>assistant"
THOUGHT = "<|channel|>analysis<|message|>adds2+2.<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>2+2=4.<|return|>"
TEMPLATE = "<|start|>user<|message|>{{ messages[0].content }}<|end|><|start|>assistant"


def write_tokenizer(folder, marks=MARKS):
    """A tokenizer of a few words and marks, with ids below 128, which FakeRuntime takes as characters."""
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="?"))
    longest = sorted(WORDS, key=len, reverse=True)
    pattern = "|".join(word.replace("?", r"\?").replace("+", r"\+").replace(".", r"\.") for word in longest)
    made.pre_tokenizer, made.decoder = Split(Regex(pattern), "isolated"), Fuse()
    made.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|end|>"}))
    ends = [made.token_to_id(mark) for mark in ("<|return|>", "<|call|>") if mark in marks]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends or [0]}))
    return HuggingFaceTokenizer(folder, chat=True)


@pytest.fixture
def tokenizer(tmp_path):
    return write_tokenizer(tmp_path)


def final(tokenizer, generated, prompt=PROMPT):
    split = tokenizer.split(tokenizer.encode_word(prompt), thinks=True)
    tokens = [token for each in tokenizer.encode_word(generated) for token in split([each]).answer]
    return tokenizer.decode([tokens])[0]


def test_without_channels_the_tokens_run_together(tokenizer):
    """What a client would see: special tokens leave no trace."""
    assert tokenizer.decode([tokenizer.encode_word(THOUGHT + ANSWER)]) == ["analysisadds2+2.assistantfinal2+2=4."]


@pytest.mark.parametrize(
    ("generated", "seen"),
    [
        (THOUGHT + ANSWER, "2+2=4."),
        (ANSWER, "2+2=4."),
        (THOUGHT + THOUGHT + ANSWER, "2+2=4."),
        ("<|channel|>final <|constrain|>json<|message|>4<|return|>", "4"),
        ("<|channel|>commentary<|message|>4<|end|><|start|>assistant" + ANSWER, "2+2=4."),
        (THOUGHT + "<|channel|>commentary to=f <|constrain|>json<|message|>4<|call|>", ""),
        (THOUGHT, ""),
        ("<|channel|>analysis<|message|>adds", ""),
        ("<|message|>4", "4"),
    ],
)
def test_the_final_channel_is_the_answer(tokenizer, generated, seen):
    assert final(tokenizer, generated) == seen


@pytest.mark.parametrize(
    ("prompt", "generated", "seen"),
    [
        ("2+2=", "4.", "4."),
        (PROMPT + "<|channel|>final<|message|>", "4.<|return|>", "4."),
        (PROMPT + "<|channel|>final", "<|message|>4.<|return|>", "4."),
        (PROMPT + "<|channel|>analysis<|message|>adds", " 2.<|end|><|start|>assistant" + ANSWER, "2+2=4."),
        ("", THOUGHT + ANSWER, "2+2=4."),
    ],
)
def test_a_prompt_of_a_clients_own_may_end_anywhere(tokenizer, prompt, generated, seen):
    assert final(tokenizer, generated, prompt) == seen


@pytest.mark.parametrize("mark", MARKS[:6])
def test_a_vocabulary_without_one_of_the_marks_has_no_channels(tmp_path, mark):
    tokenizer = write_tokenizer(tmp_path, [each for each in MARKS if each != mark])
    tokens = tokenizer.encode_word("2+2=4.")

    assert tokenizer.split([], thinks=True)(tokens) == (tokens, [])
    assert harmony_of({"<|channel|>": 1}.get, list) is None


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_reads_the_final_channel_whole_or_in_pieces(tokenizer, stream):
    asked = tokenizer.encode("2+2?")
    generated = "".join(map(chr, tokenizer.encode_word(THOUGHT + ANSWER)[:-1]))
    runtime = FakeRuntime({"".join(map(chr, asked)): generated})
    scheduler = Scheduler(runtime, tokenizer, slots=1, on_failure=lambda _: None)
    reply = RecordedReply()
    scheduler.submit(Job(tuple(asked), Sampling(100), stream), reply)

    assert (reply.text, reply.finish_reason) == ("2+2=4.", "stop")
    assert 1 <= len([piece for piece in reply.pieces if piece]) <= (len("2+2=4.") if stream else 1)
    scheduler.close(5)


def test_an_answer_that_ends_within_the_thoughts_is_empty_and_says_why(tokenizer):
    asked = tokenizer.encode("2+2?")
    runtime = FakeRuntime({"".join(map(chr, asked)): "".join(map(chr, tokenizer.encode_word(THOUGHT + ANSWER)))})
    scheduler = Scheduler(runtime, tokenizer, slots=1, on_failure=lambda _: None)
    reply = RecordedReply()
    scheduler.submit(Job(tuple(asked), Sampling(5), True), reply)

    assert (reply.text, reply.finish_reason) == ("", "length")
    scheduler.close(5)


class OpenVinoGenAi:
    """A tokenizer of OpenVINO GenAI 2026.4 with another's vocabulary, whose tokens it names by bytes."""

    def __init__(self, tokenizer, chat_template):
        self.tokenizer, self.chat_template = tokenizer, chat_template

    def get_vocab(self):
        vocabulary = {mark: self.tokenizer.encode_word(mark)[0] for mark in MARKS}
        return {token.encode(): number for token, number in vocabulary.items()}

    def encode(self, text, *, add_special_tokens):
        ids = type("Ids", (), {"data": [self.tokenizer.encode_word(text)]})
        return type("Encoded", (), {"input_ids": ids})


@pytest.mark.parametrize(("template", "seen"), [(TEMPLATE + "<|channel|>", "2+2=4."), (TEMPLATE, None)])
def test_openvinos_tokenizer_separates_the_channels_that_its_template_knows(
    openvino, tokenizer, tmp_path, template, seen
):
    served = openvino.OpenVinoTokenizer(OpenVinoGenAi(tokenizer, template), tmp_path, chat=True)
    generated = tokenizer.encode_word(THOUGHT + ANSWER)
    shown = served.split(tokenizer.encode_word(PROMPT), thinks=True)(generated).answer

    assert shown == generated if seen is None else tokenizer.decode([shown]) == [seen]
