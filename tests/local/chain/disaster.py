"""The commands of docs/disaster.md, as tests give them."""

import re

from tests.local.chain.whole_chain import MODEL
from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "disaster.md").read_text()


def commands(lost):
    """The page's commands for what was lost, in its order."""
    section = re.search(rf"^### {lost}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return [line.split() for line in re.findall(r"^ +slipway (.+)$", section, re.MULTILINE)]


def slipway(chain, *arguments):
    """The output of a command that ends well."""
    done = chain.slipway(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def give(chain, lines, backup="", release=()):
    """Give the commands, that of a release with more arguments; their outputs by command."""
    said = {}
    for line in lines:
        words = [{"<name>": MODEL, "<back-up>": str(backup)}.get(word, word) for word in line]
        said[words[0]] = slipway(chain, *words, *(release if words[0] == "release" else ()))
    return said
