"""Files that pass unchanged from one artifact to the next: large weights, and a tokenizer that serving reads."""

import os
import shutil
from pathlib import Path
from typing import Literal

from tasks.contracts.plan import ADAPTERS_FOLDER
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.announced import TOKENIZER_CONFIG, has_chat_template
from tasks.engines.checkpoint import COMPANIONS, CONFIG, read_object
from tasks.engines.gpu_options import chat_template_of


def link_tokenizer(checkpoint: Path, out: Path) -> None:
    """All that a tokenizer and a server read beside weights. Not config.json, which an engine has one of its own of."""
    for pattern in COMPANIONS:
        for file in checkpoint.glob(pattern):
            if file.name != CONFIG and not (out / file.name).exists():
                _link(file, out / file.name)


def link_all(checkpoint: Path, out: Path, *, leave: str | None = None) -> None:
    """Every file at the top of the checkpoint, but the one named `leave`."""
    for file in checkpoint.iterdir():
        if file.is_file() and file.name != leave:
            _link(file, out / file.name)


def link_adapters(checkpoint: Path, out: Path) -> None:
    """LoRA adapters that lie beside the checkpoint, each in its own folder."""
    for file in (checkpoint / ADAPTERS_FOLDER).rglob("*"):
        if file.is_file():
            target = out / file.relative_to(checkpoint)
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(file, target)


def chat_template_in(folder: Path, spec: ReleaseSpec) -> Literal["apply", "none"]:
    """What serving does with a prompt, by the tokenizer that lies in `folder`.

    Raises:
        InputError: the spec wants a chat template and there is none.
    """
    names = {file.name for file in folder.iterdir()}
    documents = {TOKENIZER_CONFIG: read_object(folder / TOKENIZER_CONFIG)} if TOKENIZER_CONFIG in names else {}
    return chat_template_of(spec, has_template=has_chat_template(names, documents))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
