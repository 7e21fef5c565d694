"""Texts of a stranger that try to become markup."""

import re

PLACES = (
    "{}",
    "<script>{}</script>",
    '<img src=x onerror="{}">',
    "<svg/onload='{}'>",
    "</td></table><iframe srcdoc='<script>parent.{}</script>'></iframe>",
    "</title></style></textarea></noscript><script>{}</script>",
    '" onmouseover="{}" autofocus onfocus="{}',
    "'-{}-'",
    "<!--><script>{}</script>-->",
    "<![CDATA[<script>{}</script>]]>",
    "&lt;script&gt;{}&lt;/script&gt;&#60;b&#62;",
    "<math><mtext></mtext><mglyph><style><img src onerror={}>",
    "javascript:{}",
    "<a href='javascript:{}'>x</a><form action='javascript:{}'><button autofocus>",
    "{{{{ {} }}}}{{% raw %}}",
    "\x00<scr\x00ipt>{}</script>\u2028\u202e",
    "````\n<script>{}</script>\n```\n~~~",
    "~~~~~~~~\n</code></pre><script>{}</script>\n`````````",
    "\x1b]0;{}\x07\x1b[2J",
    "\u202e{}\u2066",
)
"""How a text may try to have its code run, with {} for the code."""
ADDRESSES = (
    '<img src="{0}"><link rel=stylesheet href="{0}"><meta http-equiv=refresh content="0;url={0}">',
    '<iframe src="{0}"></iframe><object data="{0}"></object><video src="{0}" poster="{0}"></video>',
    "<style>@import url({0}); body {{ background: url({0}) }}</style><base href='{0}'>",
    '</style><svg><image href="{0}"/><use href="{0}#a"/></svg><link rel=prefetch href="{0}">',
    "![x]({0}) [![x]({0})]({0}) <{0}> [x]: {0}",
)
"""How it may try to have a browser ask elsewhere."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")
PROSE = {"paragraph_open", "inline", "paragraph_close"}
INLINE = {"text", "code_inline", "softbreak", "strong_open", "strong_close"}
"""Tokens of markdown-it that Slipway's own prose in Markdown has."""


def texts(code, address):
    """Every one of them."""
    return [each.format(code, code) for each in PLACES] + [each.format(address) for each in ADDRESSES]


def questions_of_specs(code, address):
    """Questions for gate.smoke with each text that a spec may hold: it may have no control characters."""
    allowed = (text for text in texts(code, address) if not CONTROL.search(text))
    return [{"prompt": text, "answer": text} for text in allowed]
