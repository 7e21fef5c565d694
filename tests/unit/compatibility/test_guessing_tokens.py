"""engine.speculative planned from one end to the other: its draft model resolved, keyed and counted, or refused."""

import json

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.huggingface.speculation import vllm_eagle3
from slipway.tasks.engines.preflight.speculation import check_speculation
from tests.fakes.documents.eks_site import eks
from tests.fakes.documents.planned_release import release_of
from tests.fakes.hub import MemoryHub
from tests.fakes.hubs.public_hub import MODELS, PublicHub
from tests.fakes.releases import SPEC as DEMO
from tests.fakes.releases import spec as demo
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml

QWEN, MISTRAL = "qwen-llmapi-fp8", "mistral-7b-vllm-a10g"
EAGLE = {"method": "eagle", "repo": "org/draft", "num_tokens": 3}
EAGLE3 = {**EAGLE, "method": "eagle3"}
SMALLER = {**EAGLE, "method": "draft_model"}
MTP = {"method": "mtp", "num_tokens": 1}
NGRAM = {"method": "ngram", "num_tokens": 4}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
DEEPSEEK = {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}


def document(name):
    return load_yaml((REPOSITORY / "specs" / f"{name}.yaml").read_text())


def vocabulary(name):
    return MODELS[document(name)["source"]["repo"]]["config"]["vocab_size"]


class HubWithDraft(PublicHub):
    """Public models, and a draft model of which a file is as large as asked."""

    def __init__(self, weights=b"head", draft=(), **changes):
        super().__init__(**changes)
        files = {"config.json": json.dumps(dict(draft)).encode(), "model.safetensors": weights, "README.md": b"about"}
        self.drafts = MemoryHub({"org/draft": {"main": files}})

    def _hub(self, repo):
        return self.drafts if repo in self.drafts.models else super()

    def resolve(self, repo, revision):
        return self._hub(repo).resolve(repo, revision)

    def read_file(self, source, path):
        return self._hub(source.repo).read_file(source, path)


@pytest.fixture
def planned(tmp_path):
    def run(name, speculative, hub=None, **engine):
        data = document(name)
        data["engine"] = {**data["engine"], **({"speculative": speculative} if speculative else {}), **engine}
        data["name"] = engine.pop("model_name", data["name"])
        data["engine"].pop("model_name", None)
        spec, site = ReleaseSpec.model_validate(data), Site.model_validate(eks())
        return release_of(spec, site, hub or HubWithDraft(), tmp_path)

    return run


def test_a_draft_model_is_pinned_with_the_files_of_a_model(planned):
    draft = planned(QWEN, EAGLE3, HubWithDraft(**LLAMA)).plan.draft

    assert (draft.repo, [file.path for file in draft.files]) == ("org/draft", ["config.json", "model.safetensors"])


def test_keys_depend_on_the_drafts_files_and_not_on_where_they_are_from(planned):
    without = planned(MISTRAL, None, HubWithDraft(**LLAMA)).plan.stages
    one = planned(MISTRAL, EAGLE3, HubWithDraft(**LLAMA)).plan.stages
    other = planned(MISTRAL, EAGLE3, HubWithDraft(b"HEAD", **LLAMA)).plan.stages
    named = one["build"].fields["engine"]["speculative"]

    assert one["download"].fields["files"].keys() - without["download"].fields["files"].keys() == {
        "draft/config.json",
        "draft/model.safetensors",
    }
    assert len({each["download"].key for each in (without, one, other)}) == 3
    assert named == {"method": "eagle3", "num_tokens": 3}
    assert "speculative" not in without["build"].fields["engine"]


def test_a_draft_model_counts_in_what_is_downloaded_and_in_scratch(planned):
    without, one = (planned(MISTRAL, each, HubWithDraft(**LLAMA)).plan for each in (None, EAGLE3))

    assert one.download_bytes == without.download_bytes + one.draft.size_bytes
    assert one.estimate.scratch_bytes == without.estimate.scratch_bytes + 2 * one.draft.size_bytes


class Gigabytes(bytes):
    """Bytes whose length is only announced."""

    def __len__(self):
        return 20 * 2**30


def test_a_draft_model_counts_in_the_memory_of_a_gpu(planned):
    with refused(what="draft model 20.0, "):
        planned(MISTRAL, EAGLE3, HubWithDraft(Gigabytes(b"head"), **LLAMA))


@pytest.mark.parametrize(
    ("name", "speculative", "changes"),
    [
        (QWEN, EAGLE3, LLAMA),
        (QWEN, NGRAM, {}),
        (MISTRAL, EAGLE, {}),
        (MISTRAL, EAGLE3, LLAMA),
        (MISTRAL, MTP, DEEPSEEK),
        (MISTRAL, NGRAM, {}),
    ],
)
def test_what_a_runtime_has_for_the_model_is_planned(planned, name, speculative, changes):
    assert planned(name, speculative, HubWithDraft(**changes)).spec.engine.speculative.method == speculative["method"]


@pytest.mark.parametrize("name", [QWEN, MISTRAL])
def test_a_smaller_model_needs_the_same_vocabulary(planned, name):
    own = vocabulary(name)

    assert planned(name, SMALLER, HubWithDraft(draft={"vocab_size": own})).plan.draft is not None
    with refused(what="does not have the vocabulary", found="7", expected=str(own)):
        planned(name, SMALLER, HubWithDraft(draft={"vocab_size": 7}))


@pytest.mark.parametrize(
    ("name", "speculative", "changes", "fields"),
    [
        (QWEN, EAGLE3, {}, {"what": "llmapi has no EAGLE 3 for Qwen/Qwen2.5-7B-Instruct", "found": "Qwen2ForCausalLM"}),
        (MISTRAL, EAGLE3, {"architectures": ["FalconForCausalLM"]}, {"what": "vllm has no EAGLE 3", "found": "Falcon"}),
        (QWEN, MTP, {"model_type": "qwen2"}, {"what": "llmapi has no multi-token prediction", "found": "qwen2"}),
        (MISTRAL, MTP, {"model_type": "deepseek_v3"}, {"what": "has no layers that predict further tokens"}),
        (
            MISTRAL,
            {**MTP, "num_tokens": 3},
            {**DEEPSEEK, "num_nextn_predict_layers": 2},
            {"what": "num_tokens 3 is not a multiple", "found": "2 layers", "remedy": "Choose 2"},
        ),
    ],
)
def test_what_a_runtime_does_not_have_for_the_model_is_refused_by_name(planned, name, speculative, changes, fields):
    with refused(**fields):
        planned(name, speculative, HubWithDraft(**changes))


def test_nothing_is_guessed_over_pipeline_stages(planned):
    with refused(what="engine.speculative is not known to work with pipeline_parallel", found="2"):
        planned(MISTRAL, NGRAM, pipeline_parallel=2)


def test_adapters_beside_guessed_tokens_are_refused_for_the_llm_api():
    asked = document(QWEN)
    asked["engine"] |= {"speculative": NGRAM, "lora": [{"name": "polite", "repo": "org/polite"}]}
    spec = ReleaseSpec.model_validate(asked)

    with refused(what="not known to work with LoRA adapters for llmapi", found="polite"):
        check_speculation(spec, {"config.json": LLAMA}, eagle3=(), mtp=())


def test_a_name_that_vllm_would_take_for_a_method_is_refused(planned):
    with refused(what="the name chat-eagle3 would make vLLM guess tokens by another method", found="eagle3"):
        planned(MISTRAL, SMALLER, HubWithDraft(draft={"vocab_size": vocabulary(MISTRAL)}), model_name="chat-eagle3")


def test_a_step_has_room_for_every_token_that_was_guessed(planned):
    with refused(what="max_num_tokens is too low", expected="x 5 with the tokens that are guessed"):
        planned(MISTRAL, NGRAM, options={"max_num_tokens": 39, "chunked_prefill": True})


@pytest.mark.parametrize(
    ("kind", "speculative", "why"),
    [
        ("llmapi", EAGLE, "llmapi cannot guess tokens by eagle: .* choose draft_model, eagle3, mtp, ngram"),
        (
            "trt-engine",
            NGRAM,
            "trt-engine cannot guess tokens by ngram: .* choose no method, or engine kind llmapi, vllm",
        ),
        ("vllm", {"method": "medusa", "num_tokens": 1}, "medusa"),
        ("vllm", {**NGRAM, "repo": "org/draft"}, "repo"),
        ("vllm", {"method": "eagle3", "num_tokens": 3}, "repo"),
        ("vllm", {**NGRAM, "num_tokens": 0}, "num_tokens"),
    ],
)
def test_specs_name_only_methods_that_a_kind_has_with_their_own_fields(kind, speculative, why):
    with pytest.raises(ValidationError, match=why):
        demo(
            engine={**DEMO["engine"], "kind": kind, "gpu": "NVIDIA-L4", "speculative": speculative},
            quantization={"format": "none"},
        )


@pytest.mark.parametrize(("version", "taken"), [("0.19.0", False), ("0.22.1", True), ("0.24.0", True)])
def test_a_later_vllm_has_eagle_3_for_more_models(version, taken):
    assert ("MistralForCausalLM" in vllm_eagle3(version)) is taken
    assert "LlamaForCausalLM" in vllm_eagle3(version)


def checked(speculative, **documents):
    engine = {**DEMO["engine"], "kind": "vllm", "gpu": "NVIDIA-A10G", "speculative": speculative}
    spec = demo(engine=engine, quantization={"format": "none"})
    files = {"draft": "draft/config.json", "index": "model.safetensors.index.json", "config": "config.json"}
    found = {files[name]: value for name, value in documents.items()}
    check_speculation(spec, found, eagle3=["LlamaForCausalLM"], mtp=["deepseek_v3", "qwen3_next"])


TARGET = {**LLAMA, "hidden_size": 8192, "vocab_size": 128256}
HEAD = {**LLAMA, "hidden_size": 8192, "vocab_size": 128256, "draft_vocab_size": 32000, "num_hidden_layers": 1}


@pytest.mark.parametrize("head", [HEAD, {**HEAD, "hidden_size": 6144, "target_hidden_size": 8192}])
def test_a_head_may_know_fewer_tokens_and_be_narrower(head):
    checked(EAGLE3, config=TARGET, draft=head)


@pytest.mark.parametrize(
    ("head", "field", "found"),
    [
        ({**HEAD, "vocab_size": 151936}, "vocab_size", "151936"),
        ({**HEAD, "hidden_size": 4096}, "hidden_size", "4096"),
        ({**HEAD, "target_hidden_size": 5120}, "hidden_size", "5120"),
    ],
)
def test_a_head_of_another_model_is_refused(head, field, found):
    with refused(what=f": {field} in config.json", found=found, remedy="trained on this model"):
        checked(EAGLE3, config=TARGET, draft=head)


DECODER = {f"model.layers.{number}.mlp.up_proj.weight": "a.safetensors" for number in range(61)}
OF_61 = {**DEEPSEEK, "num_hidden_layers": 61}


@pytest.mark.parametrize(
    "further", ["model.layers.61.enorm.weight", "mtp.layers.0.fc.weight", "model.mtp_emb_norm.weight"]
)
def test_layers_that_predict_may_have_any_of_their_names(further):
    checked(MTP, config=OF_61, index={"weight_map": {**DECODER, further: "a.safetensors"}})


def test_layers_that_the_configuration_counts_and_the_checkpoint_lacks_are_refused():
    with refused(what="no weights of the layers that predict", found="none of layer 61 or later"):
        checked(MTP, config=OF_61, index={"weight_map": DECODER})
