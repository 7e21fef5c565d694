"""Plans share what a chat template makes of the same questions: rendering takes two processes and 0.3 CPU seconds, and
tests plan a few models hundreds of times. A template that is refused is rendered each time.
"""

import json

import pytest

from slipway.tasks.engines.checkpoint.chat_template import _questions
from slipway.tasks.engines.preflight import chat


@pytest.fixture(scope="session", autouse=True)
def templates_rendered_once():
    """Render each template with each set of questions once a process."""
    render, known = chat.check_renders, set()

    def check_renders(folder, spec):
        files = tuple((file.name, file.read_bytes()) for file in sorted(folder.iterdir()))
        given = (files, json.dumps(_questions(spec)))
        if given not in known:
            render(folder, spec)
            known.add(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat, "check_renders", check_renders)
        yield
