"""Files that pass unchanged from one artifact to the next: large weights, and a tokenizer that serving reads."""

import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from slipway.tasks.contracts.engine.overrides import Overrides
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import ADAPTERS_FOLDER, DRAFT_FOLDER
from slipway.tasks.engines.checkpoint.config_reading import readable
from slipway.tasks.engines.checkpoint.files import COMPANIONS, CONFIG, read_object
from slipway.tasks.engines.checkpoint.overriding import overridden
from slipway.tasks.engines.checkpoint.own_code import NAMING_DOCUMENTS, without_code
from slipway.tasks.engines.preflight import chat


def link_tokenizer(checkpoint: Path, out: Path) -> None:
    """Link what a tokenizer and a server read besides weights, naming no code. An engine has its own config.json."""
    changed = changed_documents(checkpoint)
    for pattern in COMPANIONS:
        for file in checkpoint.glob(pattern):
            if file.name == CONFIG or (out / file.name).exists():
                continue
            if file.name in changed:
                _write(changed[file.name], out / file.name)
            else:
                link_file(file, out / file.name)


def link_all(checkpoint: Path, out: Path, *, leave: Collection[str] = ()) -> None:
    """Link every file at the top of the checkpoint except those named in `leave`."""
    for file in checkpoint.iterdir():
        if file.is_file() and file.name not in leave:
            link_file(file, out / file.name)


def link_readable(checkpoint: Path, out: Path, overrides: Overrides | None = None) -> None:
    """Link every file at the top of the checkpoint, with documents that all runtimes read alike, without code.

    Raises:
        InputError: the overrides do not fit the model.
    """
    changed = changed_documents(checkpoint, overrides)
    link_all(checkpoint, out, leave=changed)
    for name, document in changed.items():
        _write(document, out / name)


def changed_documents(checkpoint: Path, overrides: Overrides | None = None) -> dict[str, dict[str, Any]]:
    """Documents of the checkpoint, by name, that a runtime must not get as they are."""
    written = {name: read_object(checkpoint / name) for name in NAMING_DOCUMENTS if (checkpoint / name).is_file()}
    ready = {name: without_code(document) for name, document in written.items()}
    if CONFIG in ready:
        ready[CONFIG] = readable(overridden(ready[CONFIG], overrides, CONFIG))
    return {name: document for name, document in ready.items() if document != written[name]}


def link_loras(checkpoint: Path, out: Path) -> None:
    """Link the LoRA adapters beside the checkpoint, each in its own folder, with configurations that name no code."""
    for adapter in {file.parent for file in (checkpoint / ADAPTERS_FOLDER).rglob("*") if file.is_file()}:
        target = out / adapter.relative_to(checkpoint)
        target.mkdir(parents=True, exist_ok=True)
        link_readable(adapter, target)


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


def _write(document: dict[str, Any], file: Path) -> None:
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
