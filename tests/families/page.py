"""docs/models.md: which families run on CPU, and which model runs on which GPU in which format, as plan answers it."""

import textwrap
from itertools import groupby

from tasks.contracts.site.triton_images import triton_image
from tasks.engines.openvino.families import LIMIT_LIFTED, TRACED
from tests.families import cpu, newer, planning, reasons, records
from tests.support.paths import REPOSITORY

FILE = REPOSITORY / "docs" / "models.md"
COMMAND = "`.slipway/envs/tasks/bin/python -m tests.families`"
GIB = 2**30
WIDTH = 126
ON_CPU = """\
Engine kind openvino, on any x86-64 CPU. A small random checkpoint of each family went from plan to an answer of the real Triton,
in tests/local/families. The number is the cosine of the engine's logits and those of the source in 32 bits; weights at random
lose more to int4 than trained ones, so it compares families and formats, and says nothing about a model's answers.
{versions}.

plan also takes {others}. They were not run.
"""
PUBLISHED = (
    "Gemma 3 is its text models (270M, 1B): plan refuses those that see images. Weights that are already quantized are "
    "refused, such as the MXFP4 of gpt-oss: a copy in 16 bits is taken."
)
INTRODUCTION = (
    "Which families run on CPUs, and which public models `plan` takes, on which GPU and in which format, and why it refuses the "
    "others. Everything about GPUs was planned, and its server's files were rendered; none of it was run on one (docs/verified.md). {command} writes this "
    "page, and a test compares the two."
)
LEGEND = """\
A number is how many GPUs of one node the model takes: the smallest `tensor_parallel` that plan proposes. A letter or - is the
reason of a refusal; [Reasons](#reasons) explains each and names its source.

The format is `quantization.format`. Format none serves a checkpoint as it is; so do those that are already quantized (gpt-oss
in MXFP4, DeepSeek-V3 and R1 in FP8).

Each model serves {max_batch_size} sequences at once, with prompts of {max_input_tokens} tokens and {max_sequence_tokens}
tokens in all. Other limits need other GPUs: `slipway plan` says which.

The images hold {runtimes}.

A node has {nodes}. What a site chooses for itself is not counted: disk and memory of its pod shapes, and drivers.
"""
NEWER = (
    "Who serves the families that people bring since late 2025, by class and layers alone: nothing here says whether a model "
    "fits. The images hold {runtimes}. `no class`: the runtime's list of models has none; `model type`: its transformers does not "
    "know it; `no converter`: TensorRT-LLM builds no engine of it; `not exported`: optimum-intel does not trace it; `loses state`: "
    "continuous batching does not carry the state of some layers; `several parts`: it also sees or hears. None of it ran on a GPU. "
    "Besides what the last column names: {others}."
)
NOT_CONFIRMED = (
    "The configurations are copied from public sources, which tests/families/models.yaml names, and not from the Hub "
    "itself. These models have fields for which no source was found, only what is likely:"
)


def page():
    """The whole text."""
    families = [_family(name, models) for name, models in records.families().items()]
    parts = [_introduction(), _newer(), _on_cpu(), _summary(), *families, _reasons(), _not_confirmed()]
    return "\n".join(line for part in parts for line in [*part, ""]).rstrip("\n") + "\n"


def used():
    """Codes of the reasons that stand in the tables."""
    return {
        cell.reason
        for repo in records.models()
        for kind in planning.kinds()
        for cells in _rows(repo, kind).values()
        for cell in cells
        if cell.reason
    }


def _introduction():
    return ["# Models", "", _filled(INTRODUCTION.format(command=COMMAND))]


def _newer():
    header = [_row("family", "class", *newer.KINDS, "checked against"), _row(*["---"] * (3 + len(newer.KINDS)))]
    text = _filled(NEWER.format(runtimes=_runtimes(), others=newer.OTHERS))
    return ["## Families of 2026", "", text, "", *header, *(_row(*row) for row in newer.rows())]


def _on_cpu():
    versions = ", ".join(f"{tool} {number}" for tool, number in cpu.recorded()["versions"].items())
    ran = {facts["model_type"] for facts in cpu.recorded()["families"].values()}
    facts = {"versions": f"Versions: {versions}", "others": ", ".join(sorted((TRACED | LIMIT_LIFTED) - ran))}
    paragraphs = [_filled(text) for text in [*ON_CPU.format(**facts).split("\n\n"), PUBLISHED]]
    rows = [_row("family", "model_type", *cpu.FORMATS), _row("---", "---", *["---"] * len(cpu.FORMATS))]
    for family, found in cpu.recorded()["families"].items():
        cells = (
            [f"refused by plan: {found['refused']}", ""]
            if "refused" in found
            else [f"{found[f]:.2f}" for f in cpu.FORMATS]
        )
        rows.append(_row(family, found["model_type"], *cells))
    return ["## On CPUs", "", paragraphs[0], "", *rows, "", *(line for text in paragraphs[1:] for line in (text, ""))][
        :-1
    ]


def _runtimes():
    images = records.site().images.serving
    versions = {kind: triton_image(images[kind], kind) for kind in planning.kinds()}
    names = {"trtllm": "TensorRT-LLM", "vllm": "vLLM"}
    stated = dict.fromkeys(f"{names[image.flavour]} {image.runtime}" for image in versions.values())
    (release,) = {image.release for image in versions.values()}
    return f"{' and '.join(stated)} (Triton {release})"


def _nodes():
    sizes = {}
    for gpu in records.gpus():
        sizes.setdefault(records.site().gpus[gpu.product].per_node, []).append(gpu.name)
    usual = max(sizes, key=lambda count: len(sizes[count]))
    others = (f"that of {', '.join(names)} has {count}" for count, names in sizes.items() if count != usual)
    return "; ".join([f"{usual} GPUs", *others])


def _summary():
    kinds = planning.kinds()
    facts = {**planning.LIMITS, "runtimes": _runtimes(), "nodes": _nodes()}
    legend = (_filled(f"- {text}", subsequent_indent="  ") for text in LEGEND.format(**facts).split("\n\n"))
    lines = ["## On GPUs", "", *legend, "", "### At a glance", "", "Formats that run on at least one of the GPUs.", ""]
    lines += [_row("model", *kinds), _row(*["---"] * (1 + len(kinds)))]
    for repo in records.models():
        name = repo.partition("/")[2]
        anchor = repo.lower().replace("/", "").replace(".", "")
        lines.append(_row(f"[{name}](#{anchor})", *(_formats_that_run(repo, kind) for kind in kinds)))
    return lines


def _formats_that_run(repo, kind):
    rows = _rows(repo, kind)
    run = [weights for weights, cells in rows.items() if any(cell.gpus for cell in cells)]
    if run:
        return "all" if run == list(rows) else ", ".join(run)
    codes = {cell.reason for cells in rows.values() for cell in cells}
    of_the_model = [code for code in reasons.reviewed() if code in codes - reasons.of_gpus()]
    return f"no: {', '.join(of_the_model or sorted(codes))}"


def _family(name, models):
    columns = [gpu.name for gpu in records.gpus()]
    lines = [f"## {name}"]
    for repo, model in models.items():
        size_bytes = model.get("weights_bytes") or sum(model["shards"])
        (architecture,) = model["config"]["architectures"]
        lines += ["", f"### {repo}", "", f"{architecture}, {size_bytes / GIB:.1f} GiB of weights", ""]
        lines += [_row("engine", "format", *columns), _row("---", "---", *[":-:"] * len(columns))]
        for kind in planning.kinds():
            shown = [(weights, [cell.text for cell in cells]) for weights, cells in _rows(repo, kind).items()]
            for texts, same in groupby(shown, key=lambda row: row[1]):
                lines.append(_row(kind, ", ".join(weights for weights, _ in same), *texts))
    return lines


def _rows(repo, kind):
    """Cells by format."""
    columns = records.gpus()
    return {
        weights: [planning.cell(repo, kind, weights, gpu.product) for gpu in columns]
        for weights in planning.formats_of(kind)
    }


def _reasons():
    rows = [
        _row(code, *(" ".join(reason[field].split()) for field in ("why", "source")))
        for code, reason in reasons.reviewed().items()
        if code in used()
    ]
    return ["## Reasons", "", _row("", "why", "source"), _row("---", "---", "---"), *rows]


def _not_confirmed():
    models = records.models().items()
    lines = [f"- {repo}: {', '.join(model['unconfirmed'])}" for repo, model in models if "unconfirmed" in model]
    return ["## What is not confirmed", "", _filled(NOT_CONFIRMED), "", *lines]


def _filled(text, **options):
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False, break_long_words=False, **options)


def _row(*cells):
    return f"| {' | '.join(cells)} |"
