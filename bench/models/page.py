"""docs/models.md: which families run on CPU, and which model runs on which GPU in which format, as plan answers it."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TypeVar

from bench.models import cpu, new_families, planning, reasons, records
from bench.models.hub import weights_bytes
from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.contracts.site.triton_images import triton_image
from slipway.tasks.engines.openvino.families import LIMIT_LIFTED, TRACED

FILE = records.REPOSITORY / "docs" / "models.md"
GIB = 2**30
WIDTH = 126

INTRODUCTION = """\
Which families run on CPUs; which public models `plan` takes on which GPU and in which format; and why it refuses the
others. None of these models ran on a GPU: their rows were planned and rendered ([verified.md](verified.md)).
`.slipway/envs/tasks/bin/python -m bench.models` writes this page.
"""
NEW_FAMILIES = """\
Which engine kind serves the families since late 2025, by class and layers, not by size; the images hold {runtimes}.
vllm was checked against the registry in its wheel, and for {configured} a recorded configuration; llmapi against
NVIDIA's list of models, trt-engine and openvino against recorded files. Refusals:

- no class: it is not in the runtime's list of models. model type: nor in its transformers.
- no converter: TensorRT-LLM builds no engine of it. not exported: optimum-intel does not trace it.
- loses state: continuous batching loses that of some layers. several parts: it also sees or hears.
"""
ON_CPU = """\
Engine kind openvino, on any x86-64 CPU. A small random checkpoint of each family went from plan to an answer
(tests/local/families): in int8 of the real Triton, in int4 of the engine without Triton. The number is the cosine of
the engine's logits and the source's; random weights lose more to int4 than trained ones. Versions: {versions}.
"""
NOT_RUN = "plan also takes {others} other model types (slipway/tasks/engines/openvino/families.py), which were not run."
PUBLISHED = """\
Gemma 3 is its text models (270M, 1B). Weights that are already quantized are refused: use a copy in 16 bits.
"""
LEGEND = """\
- A number is how many GPUs of one node the model needs: the smallest `tensor_parallel`. A letter or - is the reason of
a refusal: [Reasons](#reasons). A format that runs on none of the GPUs has no row.
- Format none serves a checkpoint as it is, also one that is already quantized (gpt-oss, DeepSeek-V3 and R1).
- Each model serves {max_batch_size} sequences at once, with prompts of {max_input_tokens} tokens and
{max_sequence_tokens} tokens in all.
- A node has {nodes}. Disk and memory of pod shapes, and drivers, are not counted.
"""
AT_A_GLANCE = "Formats (`none` is one) that run on at least one GPU, or why none does."
NOT_CONFIRMED = """\
The configurations are copied from public sources (bench/models/models.yaml), not from the Hub itself. These fields have
no source, only what is likely:
"""

K = TypeVar("K")
V = TypeVar("V")
Cells = tuple[str, ...]
"""What the GPUs' columns show, in their order."""
Table = tuple[tuple[EngineKind, str, Cells], ...]
"""Engine kind, format and cells."""


def page() -> str:
    """The whole text."""
    paragraphs = [*_introduction(), *_new_families(), *_on_cpu(), *_on_gpus(), *_reasons(), *_not_confirmed()]
    return "\n\n".join(paragraphs) + "\n"


def used() -> set[str]:
    """Codes of the reasons that stand in the tables."""
    return {
        code
        for repo in records.models()
        for _, _, cells in _answers(repo)
        for code in cells
        if code in reasons.reviewed()
    }


def _introduction() -> Iterator[str]:
    yield "# Models"
    yield _filled(INTRODUCTION)


def _new_families() -> Iterator[str]:
    yield "## Families of 2026"
    filled = NEW_FAMILIES.format(runtimes=_runtimes(), configured=", ".join(new_families.configured()))
    text, meanings = filled.strip().split("\n\n")
    yield _filled(text)
    yield _bullets(meanings)
    yield _markdown(["family", "class", *new_families.FORMATS], new_families.rows())


def _on_cpu() -> Iterator[str]:
    families = cpu.recorded()["families"]
    ran = {name: facts for name, facts in families.items() if "refused" not in facts}
    yield "## On CPUs"
    yield _filled(ON_CPU.format(versions=", ".join(f"{tool} {v}" for tool, v in cpu.recorded()["versions"].items())))
    rows = ([name, facts["model_type"], *(f"{facts[f]:.2f}" for f in cpu.FORMATS)] for name, facts in ran.items())
    yield _markdown(["family", "model_type", *cpu.FORMATS], rows)
    refused = [f"{name} ({facts['refused']})" for name, facts in families.items() if "refused" in facts]
    yield _filled(f"plan refuses {'; '.join(refused)}.")
    others = (TRACED | LIMIT_LIFTED) - {facts["model_type"] for facts in families.values()}
    yield _filled(NOT_RUN.format(others=len(others)))
    yield _filled(PUBLISHED)


def _on_gpus() -> Iterator[str]:
    by_table = _together((_table(repo), repo) for repo in records.models())
    headings = {table: _without_organization(repos[0]) for table, repos in by_table.items() if table}
    yield "## On GPUs"
    yield _bullets(LEGEND.format(**planning.LIMITS, nodes=_nodes()))
    yield "### At a glance"
    yield AT_A_GLANCE
    rows = (_summary(repo, weights_bytes(model), headings) for repo, model in records.models().items())
    yield _markdown(["model", "GiB", *planning.kinds()], rows)
    for table, heading in headings.items():
        yield f"### {heading}"
        if others := by_table[table][1:]:
            yield _filled(f"Also {', '.join(map(_without_organization, others))}.")
        yield _grouped(table)


def _runtimes() -> str:
    images = records.site().images.serving
    versions = {kind: triton_image(images[kind], kind) for kind in planning.kinds()}
    names = {"trtllm": "TensorRT-LLM", "vllm": "vLLM"}
    stated = dict.fromkeys(f"{names[image.flavour]} {image.runtime}" for image in versions.values())
    (release,) = {image.release for image in versions.values()}
    return f"{' and '.join(stated)} (Triton {release})"


def _nodes() -> str:
    sizes: dict[int, list[str]] = {}
    for gpu in records.gpus():
        sizes.setdefault(records.site().gpus[gpu.product].per_node, []).append(gpu.name)
    usual = max(sizes, key=lambda count: len(sizes[count]))
    others = (f"that of {', '.join(names)} has {count}" for count, names in sizes.items() if count != usual)
    return "; ".join([f"{usual} GPUs", *others])


def _table(repo: str) -> Table:
    """The formats in which the model runs on at least one GPU."""
    return tuple((kind, weights, cells) for kind, weights, cells in _answers(repo) if any(map(str.isdigit, cells)))


@cache
def _answers(repo: str) -> Table:
    """What each engine kind answers for the model in each format."""
    return tuple(
        (kind, weights, tuple(planning.cell(repo, kind, weights, gpu.product).text for gpu in records.gpus()))
        for kind in planning.kinds()
        for weights in planning.formats_of(kind)
    )


def _without_organization(repo: str) -> str:
    return repo.partition("/")[2]


def _anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _summary(repo: str, size_bytes: int, headings: Mapping[Table, str]) -> list[str]:
    answers = (_formats_that_run(repo, kind) for kind in planning.kinds())
    table = _table(repo)
    name = f"[{repo}](#{_anchor(headings[table])})" if table else repo
    return [name, f"{size_bytes / GIB:.1f}", *answers]


def _formats_that_run(repo: str, kind: EngineKind) -> str:
    rows = {weights: cells for of_kind, weights, cells in _answers(repo) if of_kind == kind}
    if run := [weights for of_kind, weights, _ in _table(repo) if of_kind == kind]:
        return "all" if run == list(rows) else ", ".join(run)
    codes = {code for cells in rows.values() for code in cells} - reasons.of_gpus()
    return "; ".join(reason["short"] for code, reason in reasons.reviewed().items() if code in codes)


def _grouped(table: Table) -> str:
    """The table with equal rows and equal columns together."""
    columns = _together(zip(zip(*(cells for _, _, cells in table), strict=True), records.gpus(), strict=True))
    header = [", ".join(gpu.name for gpu in gpus) for gpus in columns.values()]
    rows = _together((cells, (kind, weights)) for kind, weights, cells in table)
    first = [records.gpus().index(gpus[0]) for gpus in columns.values()]
    lines = ([_engines(formats), *(cells[column] for column in first)] for cells, formats in rows.items())
    return _markdown(["engine and format", *header], lines)


def _together(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _engines(formats: Iterable[tuple[EngineKind, str]]) -> str:
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in _together(formats).items())


def _reasons() -> Iterator[str]:
    yield "## Reasons"
    reviewed = {code: reason for code, reason in reasons.reviewed().items() if code in used()}
    yield "\n".join(
        _item(f"{', '.join(filter(None, (f'**{code}**', reason.get('short'))))}: {reason['why']}")
        for code, reason in reviewed.items()
    )
    yield f"Each with its source: {reasons.FILE.relative_to(records.REPOSITORY)}."


def _not_confirmed() -> Iterator[str]:
    yield "## What is not confirmed"
    yield _filled(NOT_CONFIRMED)
    models = records.models().items()
    yield "\n".join(f"- {repo}: {', '.join(model['unconfirmed'])}" for repo, model in models if "unconfirmed" in model)


def _bullets(text: str) -> str:
    return "\n".join(map(_item, text.removeprefix("- ").split("\n- ")))


def _item(text: str) -> str:
    return f"- {_filled(text, indent='  ')}"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _markdown(header: list[str], rows: Iterable[Iterable[str]]) -> str:
    first, *others = (f"| {' | '.join(cells)} |" for cells in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *others])
