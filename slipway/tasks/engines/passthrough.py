"""Files that pass unchanged from one artifact to the next: large weights, and a tokenizer that serving reads."""

import json
import os
import shutil
from pathlib import Path
from typing import Literal

from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import ADAPTERS_FOLDER, DRAFT_FOLDER
from slipway.tasks.engines.checkpoint.config_reading import readable
from slipway.tasks.engines.checkpoint.files import COMPANIONS, CONFIG, read_object
from slipway.tasks.engines.preflight import chat


def link_tokenizer(checkpoint: Path, out: Path) -> None:
    """Link what a tokenizer and a server read besides weights. An engine has its own config.json."""
    for pattern in COMPANIONS:
        for file in checkpoint.glob(pattern):
            if file.name != CONFIG and not (out / file.name).exists():
                link_file(file, out / file.name)


def link_all(checkpoint: Path, out: Path, *, leave: str | None = None) -> None:
    """Link every file at the top of the checkpoint except the one named `leave`."""
    for file in checkpoint.iterdir():
        if file.is_file() and file.name != leave:
            link_file(file, out / file.name)


def link_readable(checkpoint: Path, out: Path) -> None:
    """Link every file at the top of the checkpoint, with a config.json that all serving runtimes read alike."""
    config = read_object(checkpoint / CONFIG)
    completed = readable(config)
    link_all(checkpoint, out, leave=None if completed == config else CONFIG)
    if completed != config:
        (out / CONFIG).write_text(json.dumps(completed, indent=2) + "\n", encoding="utf-8")


def link_loras(checkpoint: Path, out: Path) -> None:
    """Link the LoRA adapters beside the checkpoint, each in its own folder."""
    for file in (checkpoint / ADAPTERS_FOLDER).rglob("*"):
        if file.is_file():
            target = out / file.relative_to(checkpoint)
            target.parent.mkdir(parents=True, exist_ok=True)
            link_file(file, target)


def link_draft(checkpoint: Path, out: Path) -> None:
    """Link the draft model beside the checkpoint, with a config.json that all serving runtimes read alike."""
    folder = checkpoint / DRAFT_FOLDER
    if folder.is_dir():
        (out / DRAFT_FOLDER).mkdir(parents=True)
        link_readable(folder, out / DRAFT_FOLDER)


def chat_template_in(folder: Path, spec: ReleaseSpec) -> Literal["apply", "none"]:
    """Whether serving applies a chat template to prompts, given the tokenizer in `folder`.

    Raises:
        InputError: the spec wants a chat template and there is none.
    """
    files = [folder / name for name in chat.DOCUMENTS]
    return chat.chat_template_of(spec, {file.name: read_object(file) for file in files if file.is_file()})


def link_file(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where that is not possible."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
