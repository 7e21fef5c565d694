"""Run in an environment with transformers 5 and torch: how alike a checkpoint is to itself without one of its settings.

python drop_settings.py FOLDER FIELD...: prints the mean cosine of the logits by field, as JSON. FIELD is a field of config.json
that is left to its default, or `biases`, which are set to zero.
"""

import json
import sys
from pathlib import Path


def main():
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder, fields = Path(sys.argv[1]), sys.argv[2:]
    text = (folder / "config.json").read_text()
    ids = torch.randint(5, json.loads(text)["vocab_size"], (8, 120), generator=torch.Generator().manual_seed(3))

    def without(field):
        settings = json.loads(text)  # read again each time: transformers writes into the objects
        settings.pop(field, None)
        config = AutoConfig.for_model(settings.pop("model_type"), **settings)
        return AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()

    def logits(model):
        with torch.inference_mode():
            return model(ids).logits

    expected, found = logits(without("nothing")), {}
    for field in fields:
        model = without(field)
        if field == "biases":
            for name, parameter in model.named_parameters():
                parameter.data *= not name.endswith(".bias")
        found[field] = float(torch.nn.functional.cosine_similarity(expected, logits(model), dim=-1).mean())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
