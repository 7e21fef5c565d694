"""`slipway init`: writes a spec for a repository of the Hub, with an engine that plan says fits the site."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.cli.arguments import settings_of
from slipway.cli.deadline import within
from slipway.cli.runs.plan import plan_here
from slipway.cli.terminal import echo
from slipway.tasks.contracts.base import parse_json
from slipway.tasks.contracts.documents import parse_contract
from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec

FORMATS = ("none", "fp8_online", "int8", "int8_wo", "int4", "int4_wo")
"""Weight formats that need no calibration set, the most accurate first."""
NAME_CHARS = 40
LONGEST_SEQUENCE, POSITIONS = 8192, 4096
"""Tokens of a sequence where the model has more positions, and where it does not say how many it has."""
INPUT_SHARE = 0.75
BATCH = 8
SUGGESTED = re.compile(r"(?<![.\w])tensor_parallel ([2-9]|[1-9]\d+)\b")
"""In the text of a plan that refuses a model too large for one GPU. The step's process gives one text of all parts."""
AT_ONCE = 4
ANSWER_S = 20.0
REASON_CHARS = 160

Plan = Callable[[str], None]
"""Plans the text of a spec. Raises InputError: plan refuses it."""


@dataclass(frozen=True)
class Choice:
    """An engine for the model. `gpus` is how many of one node a server takes; `refused` is why plan refuses it."""

    kind: EngineKind
    gpu: str | None
    weights: str
    gpus: int = 1
    refused: str = ""

    @property
    def where(self) -> str:
        """What the engine runs on."""
        return f"{self.kind} on {f'{self.gpus} x {self.gpu}' if self.gpu else 'CPU'}"


@dataclass(frozen=True)
class Model:
    """What the repository says of itself."""

    repo: str
    revision: str
    positions: int

    @property
    def name(self) -> str:
        """A name for the release, of characters that a Service's name may have."""
        name = re.sub("[^a-z0-9]+", "-", self.repo.rpartition("/")[2].lower())[:NAME_CHARS].strip("-")
        return name if name[:1].isalpha() else f"m-{name}".rstrip("-")


def init(
    context: typer.Context,
    repo: Annotated[str, typer.Argument(help="A repository of the site's Hub, such as Qwen/Qwen3-0.6B.")],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; default: NAME.yaml.")
    ] = None,
) -> None:
    """Write a spec for a model, with the first engine and weight format that fit the site.

    This machine plans each engine of the site on each of its GPUs, as `slipway plan FILE` does. Comments in the spec
    say what else fits, and what does not and why. HF_TOKEN is sent to the Hub if it is set.
    """
    settings = settings_of(context)
    site = settings.site()
    model = read_model(site, repo, revision)
    file = out or Path(f"{model.name}.yaml")
    if file.exists():
        raise InputError(f"{file} exists already", remedy="Name another file with -o.")

    def plan(text: str) -> None:
        with tempfile.TemporaryDirectory(prefix="slipway-init-") as folder:
            spec = Path(folder, "spec.yaml")
            spec.write_text(text, encoding="utf-8")
            try:
                plan_here(spec, settings, None, force=False)
            except InputError as refusal:
                raise InputError(str(refusal).replace(str(spec), str(file))) from refusal

    pairs = list(engines(site))
    for kind, gpu in pairs[:1]:  # what is wrong in every document is no engine's fault
        parse_contract(ReleaseSpec, document(model, Choice(kind, gpu, formats_of(kind)[0])).encode(), str(file))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = list(pool.map(lambda pair: fitting(model, pair[0], pair[1], plan), pairs))
    text = spec_text(model, site, tried)
    parse_contract(ReleaseSpec, text.encode(), str(file))
    with file.open("x", encoding="utf-8") as new:
        new.write(text)
    echo(f"wrote {file}: read its comments, replace the question by yours, and run `slipway plan {file}`")


def read_model(site: Site, repo: str, revision: str) -> Model:
    """Ask the Hub for the model's configuration.

    Raises:
        InputError: there is no such model or revision, or its config.json cannot be used.
        UnavailableError: the Hub does not answer in time.
    """
    # the Hub's client takes half a second to import, which `slipway init --help` need not wait for
    from slipway.tasks.adapters.clock import SystemClock  # noqa: PLC0415
    from slipway.tasks.adapters.hub.hub import HuggingFaceHub  # noqa: PLC0415

    hub = HuggingFaceHub(site.hub.endpoint, os.environ.get("HF_TOKEN"), SystemClock())
    try:
        config = within(ANSWER_S, lambda: hub.read_file(hub.resolve(repo, revision), "config.json"))
    except TimeoutError as error:
        raise UnavailableError(
            f"{site.hub.endpoint} does not answer for {repo}",
            found=error,
            remedy="Check hub.endpoint in the site file, and the way there.",
        ) from error
    return Model(repo, revision, positions_of(parse_json(config, f"config.json of {repo}")))


def positions_of(config: Any) -> int:
    """How many positions a model has according to its config.json."""
    of_text = config.get("text_config", config) if isinstance(config, dict) else {}
    positions = of_text.get("max_position_embeddings", POSITIONS) if isinstance(of_text, dict) else POSITIONS
    return positions if isinstance(positions, int) and positions > 1 else POSITIONS


def engines(site: Site) -> Iterator[tuple[EngineKind, str | None]]:
    """Every engine kind that the site has an image for, with each GPU that it could run on."""
    for kind in site.images.serving:
        if ENGINE_KINDS[kind].on_gpu:
            yield from ((kind, gpu) for gpu in site.gpus)
        else:
            yield kind, None


def formats_of(kind: EngineKind) -> list[str]:
    """Weight formats to try, the most accurate first."""
    return [weights for weights in FORMATS if weights in ENGINE_KINDS[kind].formats]


def fitting(model: Model, kind: EngineKind, gpu: str | None, plan: Plan) -> Choice:
    """The most accurate weight format that fits one GPU, or else several GPUs of one node, as plan suggests them."""
    refusals: list[tuple[Choice, InputError]] = []
    for weights in formats_of(kind):
        choice = Choice(kind, gpu, weights)
        if (refusal := _refusal(model, choice, plan)) is None:
            return choice
        refusals.append((choice, refusal))
    for choice, refusal in refusals:
        if suggested := SUGGESTED.search(str(refusal)):
            several = replace(choice, gpus=int(suggested[1]))
            if _refusal(model, several, plan) is None:
                return several
    choice, refusal = refusals[-1]
    return replace(choice, refused=" ".join(str(refusal).split())[:REASON_CHARS])


def _refusal(model: Model, choice: Choice, plan: Plan) -> InputError | None:
    try:
        plan(document(model, choice))
    except InputError as refusal:
        return refusal
    return None


def spec_text(model: Model, site: Site, tried: Sequence[Choice]) -> str:
    """The spec of the first choice that fits, below comments about all of them.

    Raises:
        InputError: none fits.
    """
    fits = [choice for choice in tried if not choice.refused]
    if not fits:
        raise InputError(
            f"no engine of site {site.name} can serve {model.repo}",
            found="; ".join(f"{choice.where}: {choice.refused}" for choice in tried) or "no serving image",
            remedy="Add a GPU or a serving image to the site file, or choose a smaller model.",
        )
    lines = [f"# Made by `slipway init {model.repo}` for site {site.name}. By plan's own checks:"]
    lines += [f"#   {choice.where}: {choice.refused or f'fits with format {choice.weights}'}" for choice in tried]
    return "\n".join(lines) + "\n" + document(model, fits[0])


def document(model: Model, choice: Choice) -> str:
    """The text of a spec."""
    longest = min(LONGEST_SEQUENCE, model.positions)
    gpu = f"\n  gpu: {json.dumps(choice.gpu)}" if choice.gpu else ""
    tensor = f"\n  tensor_parallel: {choice.gpus}" if choice.gpus > 1 else ""
    return f"""\
apiVersion: slipway/v1
kind: Release
name: {json.dumps(model.name)}
source:
  repo: {json.dumps(model.repo)}
  revision: {json.dumps(model.revision)}  # a tag or a commit is released once; a branch, whenever it has moved
quantization:
  format: {choice.weights}
engine:
  kind: {choice.kind}{gpu}{tensor}
  max_batch_size: {BATCH}  # sequences at a time: more of them need more memory
  max_input_tokens: {int(longest * INPUT_SHARE)}
  max_sequence_tokens: {longest}  # prompt and answer; the model has {model.positions} positions
gate:
  smoke:  # replace this by questions that your model has to answer
    - prompt: What is the capital of France?
      answer: Paris
      match: contains
  expect:
    - {{metric: smoke_accuracy, at_least: 1.0}}
"""
