"""Every field of PEFT's LoraConfig is one of which plan knows whether an adapter that has it can be served."""

import ast
import re

from slipway.tasks.engines.preflight.loras import KEPT_BASES, NOT_SERVED, OF_TRAINING, READ
from tests.local.modelopt.runs import interpreter


def peft(file):
    (package,) = interpreter("modelopt").parents[1].glob("lib/python3*/site-packages/peft")
    return ast.parse((package / file).read_text())


def fields_of(file, name):
    """A dataclass's fields, and whether each is marked as a variant of LoRA, which computes something else."""
    (found,) = (each for each in peft(file).body if isinstance(each, ast.ClassDef) and each.name == name)
    stated = [each for each in found.body if isinstance(each, ast.AnnAssign)]
    return {each.target.id: "is_lora_variant" in ast.unparse(each) for each in stated}


def test_every_field_is_known_and_every_variant_is_refused():
    own, shared = fields_of("tuners/lora/config.py", "LoraConfig"), fields_of("config.py", "PeftConfigMixin")
    hub = fields_of("config.py", "PeftConfig")
    variants = {name for name, is_variant in own.items() if is_variant}

    assert {*own, *shared, *hub} <= {*NOT_SERVED, *READ, *OF_TRAINING}
    assert variants - NOT_SERVED.keys() == {"velora_config"}  # its backward pass alone is another one


def test_what_changes_the_model_is_refused_by_name():
    """Methods of LoraLayer that are called `<name>_init` and assign the weight of the layer that they adapt."""
    tree = peft("tuners/lora/layer.py")
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.endswith("_init")]
    texts = {node.name.removesuffix("_init"): ast.unparse(node) for node in methods}
    changing = {name for name, text in texts.items() if re.search(r"base_layer(\(\))?\.weight\.data = ", text)}

    assert changing == {"pissa", "corda", "olora", "loftq", "lora_ga"}
    assert changing & KEPT_BASES == {"lora_ga"}  # only with gradients, which a saved adapter comes without
