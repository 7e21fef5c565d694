"""Thoughts of a model, told apart from its answer by the marks that its chat template and its vocabulary have."""

import json

import pytest
from generation.model_files.channels import THOUGHT_MARKS, marks_of
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.requests.conversation import prompt_of
from generation.requests.question import Question, job
from generation.running.scheduler import Scheduler
from generation.runtime import Progress
from generation.settings import Limits
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tests.fakes.servers.generation_runtime import FakeRuntime, RecordedReply
from tests.fakes.servers.triton_stub import Request
from tests.support.seeds import dice
from tests.unit.serving.engines.test_adapters_of_an_engine import Engine, answers, load

__all__ = ["load"]

LIMITS = Limits(1_000, 2_000, 1_000)
END = "<|end|>"
PROMPTS = ("<think>\n", "")
"""What the chat template writes behind the question: DeepSeek-R1's begins the thought itself."""


def write_tokenizer(folder, opened="", marks=("<think>", "</think>"), *, special=False, template=None):
    """A tokenizer whose tokens are bytes, line breaks and the marks, as Qwen 3 has them."""
    letters = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    made = Tokenizer(BPE(letters | {"ĊĊ": len(letters)}, [("Ċ", "Ċ")]))
    made.pre_tokenizer, made.decoder = ByteLevel(add_prefix_space=False, use_regex=False), ByteLevelDecoder()
    made.add_tokens([AddedToken(mark, special=special) for mark in marks])
    made.add_special_tokens([AddedToken(END, special=True)])
    made.save(str(folder / "tokenizer.json"))
    template = template or f"{{{{ messages[0].content }}}}{opened}{{# {''.join(marks)} #}}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": END}))
    return HuggingFaceTokenizer(folder, chat=True)


@pytest.fixture
def tokenizer(tmp_path):
    return write_tokenizer(tmp_path)


class Recorded(FakeRuntime):
    """Says what a model says, in the pieces that a test wants."""

    def __init__(self, pieces):
        super().__init__()
        self.pieces = pieces

    def add(self, number, prompt, sampling):
        self.left[number] = iter(self.pieces)

    def step(self):
        return [self._step(number) for number in list(self.left)]

    def _step(self, number):
        piece = next(self.left[number], None)
        if piece is None:
            del self.left[number]
        return Progress(number, piece or (), "stop" if piece is None else "")


def answered(tokenizer, pieces, *, stream=True, **asked):
    """Thought and answer of a model that says `pieces` of tokens."""
    question = Question("Hi", stream=stream, **asked)
    scheduler = Scheduler(Recorded(pieces), tokenizer, slots=1, on_failure=lambda _: None)
    reply = RecordedReply()
    scheduler.submit(job(question, prompt_of(question, tokenizer), LIMITS), reply)
    text = reply.text
    scheduler.close(5)
    return "".join(reply.thoughts), text


def split_anywhere(tokens, chance):
    cuts = sorted(chance.sample(range(1, len(tokens)), chance.randrange(len(tokens) - 1)))
    return [tokens[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]


@pytest.mark.parametrize("opened", PROMPTS)
@pytest.mark.parametrize("stream", [True, False])
def test_any_pieces_of_an_answer_give_the_same_thought_and_answer(tmp_path, opened, stream):
    tokenizer, chance = write_tokenizer(tmp_path, opened), dice()
    begin = "" if opened else "<think>\n"
    tokens = tokenizer.encode_word(f"{begin}Is it 4 €? STOP. Yes.</think>\n\nIt is 4 €.\nSTOP not here")

    for _ in range(20):
        pieces = split_anywhere(tokens, chance)
        found = answered(tokenizer, pieces, stream=stream, stop_words=("STOP",))
        assert found == (f"{begin.removeprefix('<think>')}Is it 4 €? STOP. Yes.", "It is 4 €.\n")


@pytest.mark.parametrize("marks", THOUGHT_MARKS, ids=lambda marks: marks[0])
@pytest.mark.parametrize("special", [True, False])
def test_marks_may_be_special_tokens_or_not(tmp_path, marks, special):
    tokenizer = write_tokenizer(tmp_path, marks=marks, special=special)
    begin, end = marks

    assert answered(tokenizer, [tokenizer.encode_word(f"{begin}Hm.{end}4")]) == ("Hm.", "4")


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("4", ("", "4")),
        ("\n<think>Hm.</think>4", ("Hm.", "\n4")),
        ("<think></think>4", ("", "4")),
        ("<think>Hm. <think>Hm.</think>4", ("Hm. Hm.", "4")),
        ("<think>cut o", ("cut o", "")),
        ("<think>cut</think>", ("cut", "")),
        ("Write <think>x</think>.", ("", "Write <think>x</think>.")),
        ("<think>Hm.</think>Write <think>x</think>.", ("Hm.", "Write <think>x</think>.")),
        ("Hm.</think>4", ("", "Hm.</think>4")),
    ],
)
def test_an_answer_may_begin_with_a_thought(tokenizer, said, parts):
    assert answered(tokenizer, [tokenizer.encode_word(said)]) == parts


@pytest.mark.parametrize(
    ("opened", "said", "parts"),
    [
        ("<think>", "Hm.</think>4", ("Hm.", "4")),
        ("<think>\n\n\n", "Hm.</think>4", ("Hm.", "4")),
        ("<think>\n\n</think>\n\n", "4", ("", "4")),
        ("<think></think>", "4", ("", "4")),
        ("<think> said the user<|end|>", "4", ("", "4")),
        ("<think><|end|>", "4", ("", "4")),
    ],
)
def test_only_a_mark_at_the_end_of_the_prompt_has_begun_the_thought(tmp_path, opened, said, parts):
    """A user may write the mark as well."""
    tokenizer = write_tokenizer(tmp_path, opened)

    assert answered(tokenizer, [tokenizer.encode_word(said)]) == parts


@pytest.mark.parametrize("asked", [{"apply_chat_template": False}, {"prompt_ids": (1, 2)}])
def test_what_follows_a_prompt_of_the_clients_own_is_given_as_it_is(tokenizer, asked):
    said = "<think>Hm.</think>4"
    question = Question("Hi", **asked)
    split = tokenizer.split((1,), thinks=job(question, (1,), LIMITS).sampling.thinks)

    assert tokenizer.decode([split(tokenizer.encode_word(said)).answer]) == [said]


@pytest.mark.parametrize("template", ["{{ messages[0].content }}", "{{ messages[0].content }}<thinking>"])
def test_a_template_without_marks_changes_nothing(tmp_path, template):
    tokenizer = write_tokenizer(tmp_path, template=template)

    assert answered(tokenizer, [tokenizer.encode_word("<think>Hm.</think>4")]) == ("", "<think>Hm.</think>4")


def test_marks_that_are_no_tokens_change_nothing(tmp_path):
    tokenizer = write_tokenizer(tmp_path, marks=(), template="{{ messages[0].content }}{# <think> #}")

    assert answered(tokenizer, [tokenizer.encode_word("<think>Hm.</think>4")]) == ("", "<think>Hm.</think>4")


def test_the_marks_are_those_of_the_template():
    assert marks_of("...<think>\n\n</think>") == ("<think>", "</think>")
    assert marks_of("{% if x %}[/THINK]{% endif %}") == ("[THINK]", "[/THINK]")
    assert marks_of("{{ messages }}") is None


@pytest.mark.parametrize("stream", [True, False])
def test_a_trt_engines_answer_has_no_thought_and_ends_at_its_own_stop_word(load, stream):
    """Tokens are bytes, and preprocessing says that 1 and 2 are the marks."""
    engine = Engine(says=b"\x01Hm. STOP.\x02\n4 STOP 5", thought_marks=(1, 2))
    request = Request(text_input="Hi?", stop_words="STOP", stream=stream)

    answers(load(engine, adapters=()), request)
    outputs = [{each.name(): each.as_numpy()[0] for each in sent.output_tensors()} for sent, _ in request.sent]

    assert b"".join(each["text_output"] for each in outputs) == b"4 "
    assert b"".join(each.get("reasoning_content", b"") for each in outputs) == b"Hm. STOP."
    assert outputs[-1]["finish_reason"] == b"stop"


class OpenVinoGenAi:
    """A tokenizer of OpenVINO GenAI 2026.4 with another's vocabulary, whose tokens it names by bytes."""

    chat_template = ""

    def __init__(self, tokenizer):
        self.tokenizer, self.decode = tokenizer, tokenizer.decode

    def get_vocab(self):
        return {mark.encode(): self.tokenizer.encode_word(mark)[0] for mark in ("<think>", "</think>", END)}


@pytest.mark.parametrize("opened", PROMPTS)
def test_openvinos_tokenizer_tells_thoughts_apart(openvino, tmp_path, opened):
    tokenizer = write_tokenizer(tmp_path, opened)
    served = openvino.OpenVinoTokenizer(OpenVinoGenAi(tokenizer), tmp_path, chat=True)
    said = tokenizer.encode_word(f"{'' if opened else '<think>'}Hm.</think>\n\n4")

    parts = served.split(tokenizer.encode("Hi"), thinks=True)(said)

    assert tokenizer.decode(parts) == ["4", "Hm."]
