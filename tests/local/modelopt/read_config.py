"""Run in an environment with transformers: prints what it reads of config.json in each folder named, as JSON.

python read_config.py FOLDER...
"""

import json
import sys
from importlib.metadata import version

from transformers import AutoConfig
from transformers.utils import logging

NAMED = ("rope_theta", "rope_scaling", "rope_parameters")


def main():
    logging.set_verbosity_error()
    found = {}
    for folder in sys.argv[1:]:
        config = AutoConfig.from_pretrained(folder)
        named = {name: getattr(config, name, None) for name in NAMED}
        config._name_or_path = None
        found[folder] = {**named, **json.loads(config.to_json_string(use_diff=False))}
    print(json.dumps({"version": version("transformers"), "found": found}))


if __name__ == "__main__":
    main()
