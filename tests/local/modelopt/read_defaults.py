"""Run in an environment with transformers: prints what it reads of configurations, completed with its defaults, as JSON.

python read_defaults.py CONFIGURATIONS

CONFIGURATIONS is a JSON object of objects, each with a model_type. One whose type is not known is null.
"""

import json
import sys
from importlib.metadata import version

from transformers import CONFIG_MAPPING
from transformers.utils import logging


def main():
    logging.set_verbosity_error()
    found = {}
    for name, fields in json.loads(sys.argv[1]).items():
        if fields["model_type"] not in CONFIG_MAPPING:
            found[name] = None
            continue
        config = CONFIG_MAPPING[fields["model_type"]].from_dict(fields).get_text_config(decoder=True)
        older = {new: getattr(config, new) for new in config.attribute_map}
        found[name] = {**config.to_dict(), **older, "tie_word_embeddings": getattr(config, "tie_word_embeddings", None)}
    print(json.dumps({"version": version("transformers"), "found": found}))


if __name__ == "__main__":
    main()
