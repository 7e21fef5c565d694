"""Texts of a stranger that try to become markup."""

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
)
"""How a text may try to have its code run, with {} for the code."""
ADDRESSES = (
    '<img src="{0}"><link rel=stylesheet href="{0}"><meta http-equiv=refresh content="0;url={0}">',
    '<iframe src="{0}"></iframe><object data="{0}"></object><video src="{0}" poster="{0}"></video>',
    "<style>@import url({0}); body {{ background: url({0}) }}</style><base href='{0}'>",
    '</style><svg><image href="{0}"/><use href="{0}#a"/></svg><link rel=prefetch href="{0}">',
)
"""How it may try to have a browser ask elsewhere."""


def texts(code, address):
    """Every one of them."""
    return [each.format(code, code) for each in PLACES] + [each.format(address) for each in ADDRESSES]
