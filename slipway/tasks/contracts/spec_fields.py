"""Bounds and field types that the sections of a spec share."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

# a DNS label holds 63 characters: room for a release id's "-" and 12 hex digits, and for "-candidate"
MAX_NAME_CHARS = 40

# Upper bounds: beyond what any model, node or load test here has, and far below what Airflow, Kubernetes and Python's
# timedelta refuse. They keep a typo from becoming a deadline of years.
MAX_TOKENS = 2**24  # the longest contexts published have 10 million tokens
MAX_ANSWER_TOKENS = 2**17
PLAIN_ANSWER_TOKENS, THOUGHTFUL_ANSWER_TOKENS = 32, 2048
"""Limits of a question that sets none: room for a short answer, and for one that comes after thinking about it."""
MAX_RANKS = 64
MAX_GPUS_OF_A_POD = 64
MAX_REPLICAS = 1000
MAX_WAIT_S = 24 * 3600
MAX_REQUESTS = 100_000
MAX_REQUEST_S = 3600.0
MAX_MILLISECONDS = 1000.0 * MAX_WAIT_S
MAX_LIMIT = 1e12
MAX_KEPT = 100
MAX_STEPS = 20
MAX_LEVELS = 20
MAX_QUESTIONS = 500
MAX_EXPECTATIONS = 200
MAX_ADAPTERS = 64
MAX_OPTIONS = 100
MAX_TEMPLATE_ARGUMENTS = 20
MAX_PROMPT_CHARS = 2**18
MAX_ANSWER_CHARS = 2**16
MAX_REVISION_CHARS = 250
MAX_MEMBERS = 16
"""The largest fleet."""
FLEET_SECTIONS = ("quantization", "engine", "serving", "gate", "rollout")
"""Sections of a spec in which the members of a fleet may differ."""

MAX_DRAIN_S = 3600
"""A stopping release keeps its GPUs while requests are in flight; beyond an hour a node's own drain gives up."""

GROUP_PATIENCE_S = 1800
"""How long a model's roll-out waits for another of its group, and for a drill: models refreshed on one schedule take
turns, and a release that was built and published is not lost to a drill that is about to end."""

SecretRef = Annotated[
    str,
    StringConstraints(
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/\.?[A-Za-z0-9_-][A-Za-z0-9._-]{0,251}$",
        max_length=507,
    ),
]
"""`<secret name>/<key>` of a Secret in the step's namespace, as Kubernetes accepts them."""


def _as_the_hub_names(repo: str) -> str:
    """Refuse what the Hub's client refuses: it would be a path of the Hub's API (huggingface_hub, validate_repo_id)."""
    if any(mark in repo for mark in ("--", "..")) or repo.endswith(".git"):
        raise ValueError(f"{repo} is no repository of the Hub: it has -- or .., or ends in .git")
    return repo


def _as_git_names(revision: str) -> str:
    """Refuse what git refuses: it would be a path of the Hub's API (git-check-ref-format)."""
    parts = revision.split("/")
    if ".." in revision or not all(parts) or any(part.startswith(".") or part.endswith(".lock") for part in parts):
        raise ValueError(
            f"{revision} is no branch, tag or commit: a part of it is empty, or has dots where git has none"
        )
    return revision


HubRepo = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?/[A-Za-z0-9_]([A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?$",
        max_length=200,
    ),
    AfterValidator(_as_the_hub_names),
]
"""`<org>/<name>` on the Hub."""

HubFileUri = Annotated[str, StringConstraints(pattern=r"^hf://datasets/[^@\s]+/[^@\s]+@[^/\s]+/\S+$")]
"""`hf://datasets/<org>/<name>@<revision>/<file>`."""

S3_FOLDER = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_][A-Za-z0-9._=+-]*)+"
MAX_URI_CHARS = 512
S3FolderUri = Annotated[str, StringConstraints(pattern=rf"^{S3_FOLDER}$", max_length=MAX_URI_CHARS)]
"""`s3://<bucket>/<prefix>` without a slash at its end; no part of the prefix begins with a dot."""

MLFLOW = "mlflow:"
MLFLOW_MODEL = rf"{MLFLOW}[A-Za-z0-9_][A-Za-z0-9_. -]*(@[A-Za-z0-9_][A-Za-z0-9_-]*|/[1-9][0-9]{{0,9}})"

VOLUME = "pvc://"
VOLUME_VARIABLE = "SLIPWAY_VOLUME"
"""Environment variable of a process that mounts a claim: `<claim>=<folder>`."""
VOLUME_FOLDER = rf"{VOLUME}[a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?(/[A-Za-z0-9_][A-Za-z0-9._=+-]*)*"
SourceUri = Annotated[
    str, StringConstraints(pattern=rf"^({S3_FOLDER}|{MLFLOW_MODEL}|{VOLUME_FOLDER})$", max_length=MAX_URI_CHARS)
]
"""An S3FolderUri; `mlflow:<registered model>@<alias>` or `mlflow:<registered model>/<version>`; or
`pvc://<claim>[/<folder>]`, a folder of a PersistentVolumeClaim, as KServe's storage URIs name it."""


def claim_of(uri: str | None) -> str | None:
    """The claim of a folder on a volume; None for a source of another kind."""
    return uri.removeprefix(VOLUME).partition("/")[0] if uri and uri.startswith(VOLUME) else None


Revision = Annotated[
    str,
    StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f]+$", min_length=1, max_length=MAX_REVISION_CHARS),
    AfterValidator(_as_git_names),
]
"""A branch, a tag or a commit, as git and the Hub name them."""

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
AnswerTokens = Annotated[int, Field(ge=1, le=MAX_ANSWER_TOKENS)]
Milliseconds = Annotated[float, Field(gt=0, le=MAX_MILLISECONDS)]
Limit = Annotated[float, Field(ge=-MAX_LIMIT, le=MAX_LIMIT)]
Ratio = Annotated[float, Field(gt=0, le=MAX_LIMIT)]
OptionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
OptionNumber = Annotated[int, Field(ge=-(2**53), le=2**53)]

TEMPLATE_NAMES = frozenset(
    {
        *("messages", "add_generation_prompt", "tools", "documents", "raise_exception", "strftime_now"),
        *("bos_token", "eos_token", "pad_token", "unk_token"),
    }
)
"""Names that serving gives to a chat template, or that mean a list in it. The serving code has its own copy
(model_repository_templates/shared/generation/requests/template_arguments.py)."""


def _is_free(name: str) -> str:
    if name in TEMPLATE_NAMES:
        raise ValueError(f"{name} is not free: serving gives it to the chat template itself")
    return name


TemplateArgumentName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64), AfterValidator(_is_free)
]
TemplateArguments = Annotated[
    dict[TemplateArgumentName, str | OptionNumber | Limit | bool], Field(max_length=MAX_TEMPLATE_ARGUMENTS)
]
"""Arguments of a chat template by name, e.g. `enable_thinking: false`; which ones it knows is in its text."""


def may_be_a_list(schema: dict[str, Any]) -> None:
    """Describe a field that may be a list in a spec's file, which makes it a fleet's (spec/fleet.py)."""
    one = schema["anyOf"][0]
    schema["anyOf"].append({"type": "array", "items": one, "minItems": 1, "maxItems": MAX_MEMBERS})


def may_be_a_fleet(schema: dict[str, Any]) -> None:
    """Describe `fleet`, which is in the file of a spec and in none of its members."""
    sections = {name: {"type": "object"} for name in FLEET_SECTIONS}
    schema["properties"]["fleet"] = {
        "type": "object",
        "maxProperties": MAX_MEMBERS,
        "additionalProperties": {"type": "object", "properties": sections, "additionalProperties": False},
        "description": "by entry of a list in engine.gpu or serving.shape: the sections that differ there, in which "
        "null removes a field and a list replaces one",
    }
