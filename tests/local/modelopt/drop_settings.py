"""How alike a checkpoint is to itself without one of its settings, by transformers 5 and torch."""

import json


def likeness_without(folder, fields):
    """Mean cosine of the logits by field: a field of config.json that is left to its default, or `biases`, set to zero."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

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
    return found
