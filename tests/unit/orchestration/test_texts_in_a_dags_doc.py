"""A text of a spec stays in its code block. The judge is markdown-it, a parser of CommonMark."""

import pytest
from markdown_it import MarkdownIt

from slipway.airflow.doc_text import code, fenced

HOSTILE = [
    "```\n<img src=x onerror=alert(1)>\n```",
    "prompt: |\n  ````\n  [a](javascript:alert(1))\n  ~~~\n",
    "`" * 40,
    "a\n\n    ```\n# heading",
    "<script>alert(1)</script>",
    "plain",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_block_holds_its_text_and_nothing_else(text):
    tokens = MarkdownIt().parse(f"Before.\n\n{fenced(text, 'yaml')}\n\nAfter.\n")

    kinds = [token.type for token in tokens]
    assert kinds == [
        "paragraph_open",
        "inline",
        "paragraph_close",
        "fence",
        "paragraph_open",
        "inline",
        "paragraph_close",
    ]
    assert tokens[3].content == text.rstrip() + "\n"


@pytest.mark.parametrize("write", [code, lambda text: fenced(text, "yaml")])
def test_characters_that_control_what_is_shown_are_replaced_by_visible_ones(write):
    assert "safe␛[2J\N{REPLACEMENT CHARACTER}gpj" in write("safe\x1b[2J\u202egpj")


@pytest.mark.parametrize("text", ["main", "`![x](http://stranger/p.png)`", "a``b", "<b>x</b>", "``"])
def test_a_span_holds_its_text_and_nothing_else(text):
    (inline,) = [token for token in MarkdownIt().parse(f"at {code(text)}, quantized") if token.type == "inline"]

    assert [(child.type, child.content) for child in inline.children] == [
        ("text", "at "),
        ("code_inline", text),
        ("text", ", quantized"),
    ]
