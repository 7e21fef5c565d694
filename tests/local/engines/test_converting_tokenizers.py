"""A tokenizer becomes the same IR in the process without torch as in one that has everything."""

import json
import re

import pytest

from slipway.tasks.engines.openvino.tokenizer import convert
from tests.fixtures.family_checkpoints import SPECIAL, TEMPLATE
from tests.support.refused import refused

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Snow is white; 60 seconds are one minute.",
    "naïve Straße 日本 🙂",
]
KINDS = {
    "GPT-2's": ("BPE", "ByteLevel", "GPT2TokenizerFast"),
    "Qwen's": ("BPE", "ByteLevel", "Qwen2TokenizerFast"),
    "Llama 3's": ("BPE", "ByteLevel", "PreTrainedTokenizerFast"),
    "Llama 2's": ("BPE", "Metaspace", "LlamaTokenizerFast"),
    "Gemma's": ("BPE", "Metaspace", "GemmaTokenizerFast"),
    "T5's": ("Unigram", "Metaspace", "T5TokenizerFast"),
    "XGLM's": ("Unigram", "Metaspace", "XGLMTokenizerFast"),
    "BERT's": ("WordPiece", "BertPreTokenizer", "BertTokenizerFast"),
}
FILES = [f"openvino_{name}.{end}" for name in ("tokenizer", "detokenizer") for end in ("xml", "bin")]


def write_tokenizer(folder, model, splits, kind, template=None):
    """A small tokenizer, trained on the texts, as a checkpoint of that class brings it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    unknown = {} if splits == "ByteLevel" else {"unk_token": "<unk>"}
    special = [*SPECIAL, "<unk>"]
    made = Tokenizer(getattr(models, model)(**({} if model == "Unigram" else unknown)))
    made.pre_tokenizer = getattr(pre_tokenizers, splits)()
    made.decoder = {"BertPreTokenizer": decoders.WordPiece}.get(splits, getattr(decoders, splits, None))()
    more = {"unk_token": "<unk>"} if model == "Unigram" else {}
    trainer = getattr(trainers, f"{model.replace('BPE', 'Bpe')}Trainer")(
        vocab_size=200, special_tokens=special, show_progress=False, **more
    )
    made.train_from_iterator(TEXTS, trainer)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(made.to_str())
    document = {"tokenizer_class": kind, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", **unknown}
    document |= {"chat_template": template} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(document))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    return folder


def convert_here(checkpoint, out):
    """As the step did before: with torch and everything else in the same process."""
    import openvino
    import torch  # noqa: F401 - transformers finds it
    from openvino_tokenizers import convert_tokenizer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
    for model, name in zip(convert_tokenizer(tokenizer, with_detokenizer=True), FILES[::2], strict=True):
        openvino.save_model(model, out / name)
    return bool(tokenizer.chat_template)


def contents(folder):
    """The IR without the numbers of its nodes, which OpenVINO counts through a process."""
    return {file: re.sub(rb"\b([A-Z][A-Za-z0-9]*)_\d+", rb"\1", (folder / file).read_bytes()) for file in FILES}


@pytest.mark.parametrize("name", KINDS)
def test_a_tokenizer_becomes_the_same_ir_without_torch(name, tmp_path):
    template = TEMPLATE if name == "Llama 3's" else None
    checkpoint = write_tokenizer(tmp_path / "checkpoint", *KINDS[name], template)
    apart, here = tmp_path / "apart", tmp_path / "here"
    apart.mkdir()
    here.mkdir()

    assert convert(checkpoint, apart) == convert_here(checkpoint, here) == bool(template)

    assert contents(apart) == contents(here)


def test_a_damaged_tokenizer_is_refused_in_the_toolkits_words(tmp_path):
    checkpoint = write_tokenizer(tmp_path / "checkpoint", *KINDS["GPT-2's"])
    (checkpoint / "tokenizer.json").write_text('{"version": "9"}')

    with refused(what="cannot convert the tokenizer", remedy="fast tokenizer"):
        convert(checkpoint, tmp_path)
