"""Run in an environment with transformers: prints its version, and the class that AutoModelForCausalLM makes of each
model_type named, as JSON.

python causal_class.py MODEL_TYPE...
"""

import json
import sys
from importlib.metadata import version

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

classes = {model_type: MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type) for model_type in sys.argv[1:]}
print(json.dumps({"version": version("transformers"), "classes": classes}))
