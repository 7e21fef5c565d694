"""Run in an environment with transformers: prints what its version reads, as JSON.

python read_transformers.py JOB.json, where a job may name any of

    classes     model types: the class that AutoModelForCausalLM makes of each
    defaults    configurations by name: each completed with its defaults; null if its type is not known
    folders     folders of a checkpoint: what is read of config.json
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from transformers import CONFIG_MAPPING, AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

NAMED = ("rope_theta", "rope_scaling", "rope_parameters")


def completed(fields):
    if fields["model_type"] not in CONFIG_MAPPING:
        return None
    config = CONFIG_MAPPING[fields["model_type"]].from_dict(fields).get_text_config(decoder=True)
    older = {new: getattr(config, new) for new in config.attribute_map}
    return {**config.to_dict(), **older, "tie_word_embeddings": getattr(config, "tie_word_embeddings", None)}


def config_in(folder):
    config = AutoConfig.from_pretrained(folder)
    named = {name: getattr(config, name, None) for name in NAMED}
    config._name_or_path = None
    return {**named, **json.loads(config.to_json_string(use_diff=False))}


def read(job):
    return {
        "version": version("transformers"),
        "classes": {model_type: MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type) for model_type in job["classes"]},
        "defaults": {name: completed(fields) for name, fields in job["defaults"].items()},
        "folders": {folder: config_in(folder) for folder in job["folders"]},
    }


if __name__ == "__main__":
    logging.set_verbosity_error()
    print(json.dumps(read({"classes": [], "defaults": {}, "folders": [], **json.loads(Path(sys.argv[1]).read_text())})))
