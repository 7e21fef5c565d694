"""The templates of the pages, and what a page may do: be read, and follow a link that a person clicks."""

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from slipway.tasks.pages.models import bar
from slipway.tasks.pages.texts import shown, split_words

FOLDER = Path(__file__).parent
STYLE = (FOLDER / "style.css").read_text()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)
"""Content Security Policy: no script, no request, and no style but the page's own, whatever a text in it says."""
FORM_POLICY = POLICY.replace("form-action 'none'", "form-action 'self'")
"""The same for a page whose form goes back to where it came from."""


def _finalized(value: object) -> object:
    """What is written of a value: a text without what a browser or a terminal would obey."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalized,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {"bar": bar, "split_words": split_words}


def render(template: str, *, policy: str = POLICY, **values: object) -> str:
    """The page of a template, such as `models.html.j2`. Every value is escaped."""
    # the style is a file of the package, and its digest is in the policy
    return _TEMPLATES.get_template(template).render(style=Markup(STYLE), policy=policy, **values)  # noqa: S704
