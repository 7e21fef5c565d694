"""The files of `slipway batch`: prompts, one JSON object per line, and results, to which each answer is appended.

A result is one line, so a batch that is killed leaves whole lines and at most the beginning of one, which the next run
of the batch removes.
"""

import fcntl
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.base import (
    Contract,
    canonical_json,
    parse_json,
    read_contract,
    read_contract_json,
    sha256_of,
)
from slipway.tasks.contracts.engine.sampling import SamplingParameters
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec_fields import MAX_TOKENS, TemplateArguments
from slipway.tasks.document_files import read_regular_file

DIGEST_DIGITS = 16
MAX_PROMPT_CHARS = 1 << 22
MAX_FILE_BYTES = 1 << 30
"""The largest file of prompts: all of them are held in memory."""


class Prompt(SamplingParameters):
    """A line of the file of prompts."""

    if_invalid = 'Write one JSON object per line, such as {"prompt": "What is the capital of France?"}.'

    id: str = Field(default="", max_length=256, description="name in the results; the number of the line when absent")
    prompt: str = Field(min_length=1, max_length=MAX_PROMPT_CHARS)
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS, description="--max-tokens when absent")
    lora: str | None = Field(default=None, min_length=1, max_length=256, description="adapter of the release")
    chat_template_kwargs: TemplateArguments = Field(default_factory=dict, description="arguments of the chat template")

    def request(self, max_tokens: int) -> GenerateRequest:
        """What is sent; `max_tokens` applies to a prompt that has none of its own."""
        further = {name: value for name, value in self.requested().items() if name not in {"temperature", "seed"}}
        return GenerateRequest(
            self.prompt,
            self.max_tokens or max_tokens,
            self.temperature,
            self.seed,
            self.lora,
            self.chat_template_kwargs,
            sampling=further,
        )


class Result(Contract):
    """A line of the file of results."""

    if_invalid = "Give a file that does not exist yet, or one that `slipway batch` wrote."

    id: str
    request: str = Field(pattern=r"^[0-9a-f]{16}$", description="digest of the prompt and its settings")
    answer: str
    finish_reason: str = Field(description="stop, length or cancelled; empty where the server does not say")
    first_piece_s: float | None = Field(description="seconds until the first piece of the answer")
    seconds: float = Field(ge=0, description="seconds until its end")


def digest_of(request: GenerateRequest) -> str:
    """A digest of everything that an answer depends on, apart from the release.

    Results of older versions have no `sampling` in theirs: an empty one leaves it as it was.
    """
    fields = {name: value for name, value in vars(request).items() if name != "sampling" or value}
    return sha256_of(fields)[:DIGEST_DIGITS]


def read_prompts(file: Path) -> list[Prompt]:
    """Every prompt of a file, each with an id. Empty lines are skipped.

    Raises:
        InputError: the file cannot be read, has no prompt, a line is not a prompt, or two prompts have one id.
    """
    data = read_regular_file(file, MAX_FILE_BYTES, expected="a file of prompts")
    if len(data) > MAX_FILE_BYTES:
        raise InputError(
            f"{file} is too long", expected=f"at most {MAX_FILE_BYTES} bytes", remedy="Split it into several batches."
        )
    lines = data.split(b"\n")
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        prompt = read_contract(Prompt, parse_json(line, where, expected="a prompt", remedy=Prompt.if_invalid), where)
        prompt = prompt if prompt.id else prompt.model_copy(update={"id": str(number)})
        if prompt.id in prompts:
            raise InputError(
                f"{where}: the id {prompt.id!r} is that of an earlier prompt",
                expected="an id of its own, because results are found by it",
                remedy="Change one of them. A prompt without an id has the number of its line.",
            )
        prompts[prompt.id] = prompt
    if not prompts:
        raise InputError(f"{file} has no prompt", remedy=Prompt.if_invalid)
    return list(prompts.values())


class ResultsFile:
    """The answers of one batch. Only one process at a time has it; `append` may be called from several threads."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises:
            InputError: it cannot be opened, another batch writes to it, or it holds something else.
        """
        self._path, self._appending, self._open = path, threading.Lock(), True
        try:
            # O_NONBLOCK: a pipe would hold the command until somebody reads from it
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
        except OSError as error:
            raise InputError(f"results cannot be written to {path}", found=error.strerror or error) from error
        try:
            self._check_is_a_file()
            self._lock()
            self._results = {result.id: result for result in self._read()}
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._appending:
            os.close(self._descriptor)
            self._open = False

    def unanswered(self, prompts: Sequence[Prompt], max_tokens: int) -> list[Prompt]:
        """Prompts without a result yet.

        Raises:
            InputError: a result belongs to another prompt, so the file is another batch's.
        """
        requests = {prompt.id: digest_of(prompt.request(max_tokens)) for prompt in prompts}
        for result in self._results.values():
            if requests.get(result.id) != result.request:
                changed = "another prompt or other settings" if result.id in requests else "a prompt that is not there"
                raise InputError(
                    f"{self._path} holds the answer to {changed} under the id {result.id!r}",
                    expected="answers to the prompts of this batch",
                    remedy="Give another file with -o, or the prompts and options that these results come from.",
                )
        return [prompt for prompt in prompts if prompt.id not in self._results]

    def append(self, result: Result) -> None:
        """Write one result; it is on the disk when this returns. After the end of the batch nothing is written."""
        line = canonical_json(result.model_dump(mode="json")) + b"\n"
        with self._appending:
            if not self._open:
                return
            while line:
                line = line[os.write(self._descriptor, line) :]
            os.fsync(self._descriptor)

    def _check_is_a_file(self) -> None:
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise InputError(
                f"results cannot be written to {self._path}", found="a pipe or a device", expected="a file"
            )

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(
                f"another process writes results to {self._path}", remedy="Wait until it ends, or give another file."
            ) from error

    def _read(self) -> list[Result]:
        lines = self._path.read_bytes().split(b"\n")
        last = lines.pop()
        results = [
            read_contract_json(Result, line, f"{self._path}, line {number}") for number, line in enumerate(lines, 1)
        ]
        if last:
            self._check_is_a_beginning(last, len(lines) + 1)
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - len(last))
        return results

    def _check_is_a_beginning(self, text: bytes, number: int) -> None:
        """Refuse a last line that no killed batch wrote: it is somebody's data."""
        start = b'{"answer":'
        if text[: len(start)] != start[: len(text)]:
            read_contract_json(Result, text, f"{self._path}, line {number}")
