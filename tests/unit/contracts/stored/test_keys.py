"""A key changes when what the stage reads changes, and only then."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.engine.overrides import Overrides, RopeParameters
from slipway.tasks.contracts.engine.speculation import Drafted, PromptLookup
from slipway.tasks.contracts.notifications import Notifier
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.plan import (
    DatasetFile,
    Datasets,
    HubFile,
    Source,
    Tools,
    release_id,
    stage_fields,
    stage_keys,
)
from tests.fakes.releases import SPEC, spec
from tests.fakes.spec_fields import field_paths, with_field

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
    "prompt": ("build", in_section("engine", max_input_tokens=127)),
    "engine kind": ("quantize", in_section("engine", kind="vllm")),
    "gpu": ("build", in_section("engine", gpu="NVIDIA-L4")),
    "tensor parallelism": ("build", in_section("engine", tensor_parallel=2)),
    "pipeline parallelism": ("build", in_section("engine", pipeline_parallel=2)),
    "guessed tokens": ("build", in_section("engine", speculative=PromptLookup(method="ngram", num_tokens=2))),
    "arguments of the chat template": (
        "assemble",
        in_section("engine", chat_template_kwargs={"enable_thinking": False}),
    ),
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
    "notifications": (None, section(notifications=(Notifier(notifier="a.B"),))),
}


@pytest.mark.parametrize("change", CHANGES)
@settings(max_examples=15)
@given(before=asked())
def test_a_change_flips_exactly_the_keys_of_the_stages_that_read_it(change, before):
    first, apply = CHANGES[change]
    old, new = before.keys(), apply(before).keys()

    assert {stage for stage in STAGES if old[stage] != new[stage]} == DOWNSTREAM[first]


READ = {
    "name": ("assemble", "demo", "renamed"),
    "quantization.format": ("quantize", "int8", "none"),
    "quantization.kv_cache": ("quantize", "none", "fp8"),
    "quantization.calibration.samples": ("quantize", 7, 8),
    "quantization.calibration.max_tokens": ("quantize", 70, 80),
    "engine.kind": ("quantize", "openvino", "vllm"),
    "engine.gpu": ("build", "NVIDIA-L4", "NVIDIA-A10G"),
    "engine.tensor_parallel": ("build", 1, 2),
    "engine.pipeline_parallel": ("build", 1, 2),
    "engine.expert_parallel": ("build", 1, 2),
    "engine.attention_dp": ("build", False, True),
    "engine.max_batch_size": ("build", 8, 9),
    "engine.max_input_tokens": ("build", 128, 127),
    "engine.max_sequence_tokens": ("build", 256, 255),
    "engine.options": ("build", {"a": 1}, {"a": 1.0}),
    "engine.chat_template_kwargs": ("assemble", {}, {"enable_thinking": False}),
    "engine.speculative.method": ("build", "eagle", "eagle3"),
    "engine.speculative.num_tokens": ("build", 1, 2),
    "engine.speculative.lookup_tokens": ("build", 1, 2),
    "engine.overrides.rope_parameters.rope_type": ("build", "linear", "dynamic"),
    "engine.overrides.rope_parameters.factor": ("build", 2.0, 4.0),
    "engine.overrides.rope_parameters.original_max_position_embeddings": ("build", None, 4096),
    "serving.gpus": ("assemble", (0,), (1,)),
}
"""Fields of a spec that are part of keys: the first stage that reads each, and two values of it."""
READ_EARLIER = {("trt-engine", "engine.gpu"): "quantize", ("trt-engine", "serving.gpus"): "build"}
"""Stages of a compiled engine that read a field earlier than other kinds, which read it when they load."""
NOT_READ = {
    "": "apiVersion kind schedule",
    "source.": "repo revision token_secret uri",  # the files are, with their digests
    "quantization.calibration.": "dataset",  # its file is, as below for gate.quality.perplexity
    "engine.lora.": "name repo revision",  # adapters are files of download
    "engine.speculative.": "repo revision",  # so is a draft model
    "serving.": "image shape exposure ready_timeout_s drain_s connection_age_s group",  # an image is a producer's version
    "serving.replicas.": "min max",
    "serving.autoscale.": "metric target stabilization_s",
    "gate.smoke.": "match min_similarity seed stop top_p top_k min_tokens presence_penalty frequency_penalty "
    "repetition_penalty bad_words temperature prompt answer max_tokens lora chat_template_kwargs",
    "gate.smoke.history.": "role content",
    "gate.quality.": "match min_similarity seed stop top_p top_k min_tokens presence_penalty frequency_penalty "
    "repetition_penalty bad_words temperature dataset max_tokens chat_template_kwargs perplexity",
    "gate.benchmark.": "concurrency request_rate requests max_requests budget_s warmup max_tokens request_timeout_s",
    "gate.benchmark.prompts.": "dataset input_tokens input_tokens_stddev output_tokens output_tokens_stddev",
    "gate.benchmark.goodput.": "ttft_ms itl_ms latency_ms",
    "gate.harness.": "api concurrency",
    "gate.harness.tasks.": "task questions samples num_fewshot max_tokens metric filter at_least max_drop_of_live min_count",
    "gate.expect.": "metric quantile concurrency request_rate at_most at_least at_most_ratio at_least_ratio of min_count",
    "adapters.": "name repo revision",
    "adapters.smoke.": "match min_similarity seed stop top_p top_k min_tokens presence_penalty frequency_penalty "
    "repetition_penalty bad_words temperature prompt answer max_tokens lora chat_template_kwargs",
    "adapters.smoke.history.": "role content",
    "rollout.": "strategy steps mirror bake_s keep surge approval",
    "rollout.canary.": "min_requests extra_errors slowdown blind_looks",
    "rollout.drill.": "schedule request_rate seconds",
    "notifications.": "notifier arguments events",
}
"""Fields of a spec that are part of no key, by section."""
IRRELEVANT = {f"{section}{name}" for section, names in NOT_READ.items() for name in names.split()}


def test_every_field_of_a_spec_is_known_to_be_part_of_keys_or_of_none():
    paths = field_paths(ReleaseSpec)

    assert READ.keys() & IRRELEVANT == set()
    assert READ.keys() | IRRELEVANT == paths


GUESSES = {
    "engine.speculative.lookup_tokens": PromptLookup(method="ngram", num_tokens=1),
    "": Drafted(method="eagle", repo="org/draft", num_tokens=1),
}
LONGER = Overrides(rope_parameters=RopeParameters(rope_type="yarn", factor=2.0))


@pytest.mark.parametrize("path", sorted([*READ, *IRRELEVANT]))
def test_a_field_of_a_spec_flips_the_keys_of_the_stages_that_read_it(path):
    first, *values = READ.get(path, (None, "one", "other"))
    calibrated = {"format": "int8", "calibration": {"dataset": "hf://datasets/org/texts@main/c.jsonl"}}
    source = Source(repo="org/model", revision="main", commit="a" * 40, files=())
    datasets = Datasets(calibration=dataset("3" * 64), perplexity=dataset("4" * 64, "p.jsonl"))
    before = Asked(spec(quantization=calibrated), source, datasets, Tools(producers={}, templates={}), {})
    before = in_section("engine", speculative=GUESSES.get(path, GUESSES[""]), overrides=LONGER)(before)

    for kind in ENGINE_KINDS:
        of_kind = with_field(before.spec, "engine.kind", kind)
        old, new = (replace(before, spec=with_field(of_kind, path, value)).keys() for value in values)
        stage = READ_EARLIER.get((kind, path), first)
        assert {each for each in STAGES if old[each] != new[each]} == DOWNSTREAM[stage], kind


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
