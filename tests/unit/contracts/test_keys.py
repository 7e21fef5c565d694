"""A key changes when what the stage reads changes, and only then."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contracts.artifact import STAGES
from tasks.contracts.plan import DatasetFile, Datasets, HubFile, Source, Tools, release_id, stage_fields, stage_keys
from tests.fakes.releases import SPEC, spec

DOWNSTREAM = {
    "download": set(STAGES),
    "quantize": {"quantize", "build", "assemble", "publish"},
    "build": {"build", "assemble", "publish"},
    "assemble": {"assemble", "publish"},
    None: set(),
}
sha256s = st.text("0123456789abcdef", min_size=64, max_size=64)
commits = st.text("0123456789abcdef", min_size=40, max_size=40)
versions = st.from_regex(r"[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True)


@dataclass(frozen=True)
class Asked:
    """Everything that plan knows when it computes keys."""

    spec: object
    source: Source
    datasets: Datasets
    tools: Tools
    adapters: dict
    salt: str | None = None

    def keys(self):
        return stage_keys(
            stage_fields(self.spec, self.source, self.datasets, self.tools, adapters=self.adapters, salt=self.salt)
        )


def adapter(digest="7" * 64, **changes):
    files = (HubFile(path="adapter_model.safetensors", digest=f"sha256:{digest}", size_bytes=1),)
    return Source(**{"repo": "org/polite", "revision": "main", "commit": "c" * 40, "files": files, **changes})


def dataset(digest, name="texts.jsonl"):
    file = HubFile(path=name, digest=f"sha256:{digest}", size_bytes=1)
    return DatasetFile(repo="org/texts", commit="c" * 40, file=file)


@st.composite
def asked(draw):
    files = draw(st.dictionaries(st.sampled_from(["model.safetensors", "config.json", "a.json"]), sha256s, min_size=1))
    source = Source(
        repo="org/model",
        revision="main",
        commit=draw(commits),
        files=tuple(HubFile(path=path, digest=f"sha256:{digest}", size_bytes=1) for path, digest in files.items()),
    )
    producers = {stage: {"tool": draw(versions)} for stage in ("quantize", "build", "assemble")}
    tools = Tools(producers=producers, templates={"config.pbtxt.j2": draw(sha256s)})
    calibrated = spec(
        quantization={
            "format": draw(st.sampled_from(["int8", "int4"])),
            "calibration": {"dataset": "hf://datasets/org/texts@main/c.jsonl"},
        },
        engine={**SPEC["engine"], "max_batch_size": draw(st.integers(1, 64))},
    )
    datasets = Datasets(calibration=dataset(draw(sha256s)), perplexity=dataset(draw(sha256s), "p.jsonl"))
    return Asked(calibrated, source, datasets, tools, {"polite": adapter()})


def section(**changes):
    def change(before):
        return replace(before, spec=before.spec.model_copy(update=changes))

    return change


def in_section(name, **changes):
    def change(before):
        part = getattr(before.spec, name)
        return section(**{name: part.model_copy(update=changes)})(before)

    return change


def calibration(**changes):
    def change(before):
        texts = before.spec.quantization.calibration
        return in_section("quantization", calibration=texts.model_copy(update=changes))(before)

    return change


def file(**changes):
    def change(before):
        first, *others = before.source.files
        files = (first.model_copy(update=changes), *others)
        return replace(before, source=before.source.model_copy(update={"files": files}))

    return change


def more_files(before):
    files = (*before.source.files, HubFile(path="new.json", digest=f"git-sha1:{'1' * 40}", size_bytes=1))
    return replace(before, source=before.source.model_copy(update={"files": files}))


def of_source(**changes):
    return lambda before: replace(before, source=before.source.model_copy(update=changes))


def of_adapters(**adapters):
    return lambda before: replace(before, adapters=adapters)


def of_datasets(**changes):
    return lambda before: replace(before, datasets=before.datasets.model_copy(update=changes))


def producer(stage):
    def change(before):
        producers = {**before.tools.producers, stage: {"tool": "new"}}
        return replace(before, tools=before.tools.model_copy(update={"producers": producers}))

    return change


def templates(before):
    return replace(before, tools=before.tools.model_copy(update={"templates": {"config.pbtxt.j2": "e" * 64}}))


def reversed_files(before):
    return of_source(files=tuple(reversed(before.source.files)))(before)


OTHER_GATE = spec(gate={**SPEC["gate"], "smoke": [{"prompt": "Who?", "answer": "You."}]}).gate
CHANGES = {
    "a file's bytes": ("download", file(digest=f"git-sha1:{'2' * 40}")),
    "a file's name": ("download", file(path="renamed.json")),
    "one file more": ("download", more_files),
    "an adapter's bytes": ("download", of_adapters(polite=adapter("8" * 64))),
    "an adapter's name": ("download", of_adapters(terse=adapter())),
    "one adapter less": ("download", of_adapters()),
    "an adapter's repository": (None, of_adapters(polite=adapter(repo="org/mirror", commit="e" * 40))),
    "salt of a forced run": ("download", lambda before: replace(before, salt="run-2")),
    "format": ("quantize", in_section("quantization", format="none")),
    "kv cache": ("quantize", in_section("quantization", kv_cache="int8")),
    "calibration texts": ("quantize", of_datasets(calibration=dataset("3" * 64))),
    "calibration samples": ("quantize", calibration(samples=7)),
    "calibration length": ("quantize", calibration(max_tokens=77)),
    "perplexity texts": ("quantize", of_datasets(perplexity=dataset("4" * 64))),
    "quantizer": ("quantize", producer("quantize")),
    "batch": ("build", in_section("engine", max_batch_size=65)),
    "sequence": ("build", in_section("engine", max_sequence_tokens=300)),
    "engine option": ("build", in_section("engine", options={"threads": 2})),
    "builder": ("build", producer("build")),
    "template": ("assemble", templates),
    "serving image": ("assemble", producer("assemble")),
    "name": ("assemble", section(name="renamed")),
    "README-only commit": (None, of_source(commit="f" * 40)),
    "revision's name": (None, of_source(revision="v9")),
    "order of files": (None, reversed_files),
    "quality questions": (None, of_datasets(quality=dataset("5" * 64))),
    "smoke answer": (None, section(gate=OTHER_GATE)),
    "replicas": (None, section(serving=spec(serving={"replicas": {"max": 9}}).serving)),
    "time to drain": (None, section(serving=spec(serving={"drain_s": 900}).serving)),
    "roll-out": (None, section(rollout=spec(rollout={"keep": 5}).rollout)),
    "schedule": (None, section(schedule="@daily")),
}


@pytest.mark.parametrize("change", CHANGES)
@settings(max_examples=15)
@given(before=asked())
def test_a_change_flips_exactly_the_keys_of_the_stages_that_read_it(change, before):
    first, apply = CHANGES[change]
    old, new = before.keys(), apply(before).keys()

    assert {stage for stage in STAGES if old[stage] != new[stage]} == DOWNSTREAM[first]


@settings(max_examples=30)
@given(before=asked())
def test_the_same_request_has_the_same_keys(before):
    again = Asked(before.spec.model_copy(deep=True), before.source, before.datasets, before.tools, before.adapters)

    assert before.keys() == again.keys()


@given(before=asked())
@settings(max_examples=20)
def test_a_stage_has_a_key_of_its_own(before):
    assert len(set(before.keys().values())) == len(STAGES)


LORA = {**SPEC["engine"], "kind": "vllm", "gpu": "NVIDIA-L4", "lora": [{"name": "polite", "repo": "org/polite"}]}


def test_an_engine_is_built_again_only_for_a_gpu_id_beyond_those_it_may_load_on():
    source = Source(repo="org/model", revision="main", commit="a" * 40, files=())
    engine = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-L4"}

    def key(**serving):
        asked = spec(engine=engine, serving=serving, quantization={"format": "none"})
        return stage_keys(stage_fields(asked, source, Datasets(), Tools(producers={}, templates={})))["build"]

    assert key() == key(group="chat", gpus=[0]) != key(group="chat", gpus=[2])


def test_what_an_adapter_is_fetched_as_is_in_no_key_but_its_files_are():
    source = Source(repo="org/model", revision="main", commit="a" * 40, files=())
    asked = spec(engine=LORA, quantization={"format": "none"})
    fields = stage_fields(asked, source, Datasets(), Tools(producers={}, templates={}), adapters={"polite": adapter()})

    assert fields["download"] == {"files": {"lora/polite/adapter_model.safetensors": f"sha256:{'7' * 64}"}}
    assert "lora" not in fields["build"]["engine"]


def test_a_release_is_named_by_its_model_and_twelve_digits():
    assert release_id("demo", "0123456789abcdef" * 4) == "demo-0123456789ab"
