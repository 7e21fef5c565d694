"""A bound of tokens from bytes refuses no prompt that would fit, whatever a checkpoint's tokenizer does with a text."""

import json
import unicodedata

import pytest
from generation.model_files.token_bytes import NFC_SHRINKS, longest_token
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.paths import HUB

tokenizers = pytest.importorskip("tokenizers")

LETTERS = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
NORMALIZERS = [
    {"type": "NFC"},
    {"type": "NFKC"},
    {"type": "NFD"},
    {"type": "Lowercase"},
    {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"String": "aa"}, "content": "a"},
    {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "},
    {"type": "ByteLevel"},
]
KEEP_ALL = [NORMALIZERS[0], NORMALIZERS[7], NORMALIZERS[8], NORMALIZERS[11]]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLITS = [
    BYTE_LEVEL,
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "Digits", "individual_digits": True},
    {"type": "WhitespaceSplit"},
    {"type": "Whitespace"},
    {"type": "BertPreTokenizer"},
    *(
        {"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": False}
        for behavior in ("Removed", "Isolated", "MergedWithNext")
    ),
]
VOCABULARIES = [[*LETTERS, "ab"], [*BYTE_TOKENS, "a", "b", "▁", "ab"], ["a", "b", "▁", "ab"]]


@st.composite
def documents(draw):
    """A tokenizer.json: every part may be of any kind. Half of them are tame, so that many have a bound."""
    tame = draw(st.booleans())
    words = ["<unk>", *draw(st.sampled_from(VOCABULARIES))]
    vocabulary, fallback = {word: number for number, word in enumerate(words)}, draw(st.booleans())
    common = {"unk_token": "<unk>"}
    bpe = {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]], "byte_fallback": fallback, **common}
    model = draw(
        st.sampled_from(
            [
                {**bpe, "fuse_unk": False},
                {**bpe, "fuse_unk": True},
                {**bpe, "fuse_unk": False, "unk_token": None},
                {"type": "Unigram", "vocab": [[word, -1.0] for word in words], "unk_id": 0, "byte_fallback": fallback},
                {"type": "WordPiece", "vocab": vocabulary, "continuing_subword_prefix": "##", **common}
                | {"max_input_chars_per_word": 100},
                {"type": "WordLevel", "vocab": vocabulary, **common},
            ]
        )
    )
    added = {"id": len(words), "content": "<end>", "single_word": False, "normalized": False, "special": True}
    added |= {"lstrip": not tame and draw(st.booleans()), "rstrip": not tame and draw(st.booleans())}
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    return {
        "version": "1.0",
        "truncation": None if tame else draw(st.none() | st.just(cut)),
        "padding": None,
        "added_tokens": [added] if draw(st.booleans()) else [],
        "normalizer": draw(_sequence(KEEP_ALL if tame else NORMALIZERS, "normalizers")),
        "pre_tokenizer": draw(_sequence(SPLITS[:3] if tame else SPLITS, "pretokenizers")),
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def _sequence(steps, inner):
    chosen = st.lists(st.sampled_from(steps), min_size=1, max_size=2)
    return st.none() | st.sampled_from(steps) | chosen.map(lambda each: {"type": "Sequence", inner: each})


PIECES = [
    "a",
    "b",
    "ab",
    " ",
    "\x00",
    "<end>",
    "é",
    "e\u0301",
    "\u1100\u1161\u11a8",
    "ﷺ",
    "\U0001d400",
    "語",
    "😀",
    "\u200b",
    "0",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).flatmap(
    lambda pieces: st.integers(1, 40).map(lambda times: "".join(piece * times for piece in pieces))
)


@given(document=documents(), text=TEXTS)
@example(document=json.loads((HUB / "slipway/demo-llama/v1/tokenizer.json").read_text()), text="語" * 100)
def test_a_text_has_as_many_tokens_as_its_bytes_need(document, text):
    longest = longest_token(document)
    if longest is None:
        return

    tokens = tokenizers.Tokenizer.from_str(json.dumps(document)).encode(text, add_special_tokens=False).ids
    assert len(tokens) * longest >= len(text.encode())


def of(model, normalizer=None, split=BYTE_LEVEL, **changed):
    return {"model": model, "normalizer": normalizer, "pre_tokenizer": split, "added_tokens": [], **changed}


GPT_2 = {"type": "BPE", "vocab": dict.fromkeys([*LETTERS, "Ġword"], 0), "unk_token": None}
LLAMA_2 = {"type": "BPE", "vocab": dict.fromkeys([*BYTE_TOKENS, "▁word"], 0), "byte_fallback": True, "fuse_unk": True}


@pytest.mark.parametrize(
    ("document", "longest"),
    [
        (of(GPT_2), 6),
        (of(GPT_2, {"type": "NFC"}), 18),
        (of(LLAMA_2, {"type": "Sequence", "normalizers": [NORMALIZERS[7], NORMALIZERS[8]]}, None), 7),
        (of(GPT_2, {"type": "NFKC"}), None),
        (of(GPT_2, truncation={"max_length": 2}), None),
        (of(GPT_2, added_tokens=[{"content": "<mask>", "lstrip": True}]), None),
        (of({**LLAMA_2, "byte_fallback": False}, None, None), None),
        (of({"type": "WordPiece", "vocab": {"a": 0}}, None, {"type": "BertPreTokenizer"}), None),
        ({}, None),
    ],
)
def test_the_tokenizers_of_language_models_have_a_bound_and_others_none(document, longest):
    assert longest_token(document) == longest


def test_nfc_makes_a_third_of_a_text_at_most():
    characters = map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
    shrunk = (
        len(unicodedata.normalize("NFD", each).encode()) / len(unicodedata.normalize("NFC", each).encode())
        for each in characters
        if unicodedata.decomposition(each) or "가" <= each <= "힣"
    )

    assert max(shrunk) == NFC_SHRINKS
