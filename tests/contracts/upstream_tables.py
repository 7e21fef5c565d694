"""Tables that plan reads of a runtime, from the files of its wheel. Nothing of the wheel is imported or executed.

`python -m tests.contracts write FOLDER` writes the tables of the packages below a folder with unpacked wheels, or of an
environment, to slipway/tasks/engines/upstream; tests/contracts/wheels compares the stored ones with the wheels.
"""

import ast
import gc
import json
import re
from functools import cache

from packaging.requirements import Requirement

from tests.support.paths import REPOSITORY

TABLES = REPOSITORY / "slipway" / "tasks" / "engines" / "upstream"
GENERATORS = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")
POOLING = (
    *("_EMBEDDING_MODELS", "_LATE_INTERACTION_MODELS", "_REWARD_MODELS"),
    *("_TOKEN_CLASSIFICATION_MODELS", "_SEQUENCE_CLASSIFICATION_MODELS"),
)
MARKERS = frozenset({"IsAttentionFree", "IsHybrid", "HasNoOps", "SupportsEagle3", "Protocol", "object", "nn.Module"})
NOT_FOR_TEXT = ("supports_transcription_only", "supports_multimodal_raw_input_only")
"""Class attributes of models that no prompt of text reaches."""


def tables_of(folder):
    """The name and content of each table that the packages below a folder make."""
    packages = {"vllm": ("vllm", vllm_table), "transformers": ("transformers", transformers_table)}
    for package, (name, read) in packages.items():
        if (folder / package).is_dir():
            version = version_of(folder, package)
            table = {"package": name, "version": version, **read(folder / package)}
            if requirements := of_transformers(metadata_of(folder, package)):
                table["transformers_majors"] = requirements
            yield f"{name}-{version}.json", table


def written(table):
    return json.dumps(table, indent=1, sort_keys=True) + "\n"


def version_of(folder, package):
    """The version of an installed package."""
    return metadata_of(folder, package).name.removesuffix(".dist-info").rpartition("-")[2]


def metadata_of(folder, package):
    """The dist-info of an installed package; a third party's build of vLLM has a name of its own."""
    (metadata,) = [
        each for each in folder.glob(f"{package}*.dist-info") if each.name.startswith((f"{package}-", f"{package}_"))
    ]
    return metadata


def of_transformers(metadata):
    """The major versions of transformers that a package requires; none where it requires no transformers."""
    lines = (metadata / "METADATA").read_text().splitlines()
    stated = [Requirement(line.partition(": ")[2]) for line in lines if line.startswith("Requires-Dist: transformers")]
    return [major for major in (4, 5) if any(allows(each.specifier, major) for each in stated if not each.marker)]


def allows(specifier, major):
    """Whether a version of this series fulfils a requirement: one that it names, or a later one than all of those."""
    named = [each.version for each in specifier if each.version.startswith(f"{major}.") and "*" not in each.version]
    return any(specifier.contains(version) for version in (*named, f"{major}.0", f"{major}.9999"))


def vllm_table(package):
    registry = parsed(package / "model_executor" / "models" / "registry.py")
    generators = {}
    for name in GENERATORS:
        generators |= literal_items(assigned(registry, name))
    classes = Classes(package)
    facts = {name: classes.facts(*place) for name, place in generators.items()}
    places, generators = generators, {name for name in generators if not facts[name] & set(NOT_FOR_TEXT)}
    convertor = parsed(package / "transformers_utils" / "model_arch_config_convertor.py")
    speculative = function(parsed(package / "config" / "speculative.py"), "hf_config_override")
    return {
        "generators": sorted(generators),
        "pooling": sorted({each for name in POOLING for each in literal_items(assigned(registry, name))} - generators),
        "attention_free": sorted(name for name in generators if "IsAttentionFree" in facts[name]),
        "hybrid": sorted(name for name in generators if "IsHybrid" in facts[name]),
        "noops": sorted(name for name in generators if "HasNoOps" in facts[name]),
        "tokenized_as_written": tokenized_as_written(package, {name: places[name] for name in generators}),
        "untied": untied(package, classes, {name: places[name] for name in generators}),
        "eagle3": sorted(name for name in generators if "SupportsEagle3" in facts[name]),
        "fused": fused(classes, {name: places[name] for name in generators}),
        "config_types": sorted(
            keywords(assigned(parsed(package / "transformers_utils" / "config.py"), "_CONFIG_REGISTRY"))
        ),
        "latent_types": first_tuple(function(convertor, "is_deepseek_mla")),
        "kv_head_names": assigned_list(function(convertor, "get_total_num_kv_heads"), "attributes"),
        "expert_names": assigned_list(function(convertor, "get_num_experts"), "num_expert_names"),
        "position_names": assigned_list(function(convertor, "derive_max_model_len_and_key"), "possible_keys"),
        "mtp": mtp(speculative),
        "not_in_float16": sorted(
            literal_items(assigned(parsed(package / "config" / "model.py"), "_FLOAT16_NOT_SUPPORTED_MODELS"))
        ),
        "quantization_methods": strings(assigned(quantization(package, "__init__"), "QuantizationMethods")),
        "modelopt_algorithms": strings(assigned(quantization(package, "modelopt"), "QUANT_ALGOS")),
    }


def transformers_table(package):
    auto = package / "models" / "auto"
    causal = assigned(parsed(auto / "modeling_auto.py"), "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
    names = auto / "auto_mappings.py"
    configs = parsed(names if names.exists() else auto / "configuration_auto.py")
    return {
        "model_types": sorted(dict(pairs(assigned(configs, "CONFIG_MAPPING_NAMES")))),
        "through_vllm": through_vllm(package, {name for _, name in pairs(causal)}),
        "tokenizers": tokenizers(package),
    }


def through_vllm(package, causal):
    """Causal classes that vLLM may serve without one of its own: those whose attention is exchangeable."""
    found = set()
    for file in (package / "models").glob("*/modeling_*.py"):
        text = file.read_text()
        if "_supports_attention_backend = True" in text:
            found |= causal & set(re.findall(r"^class (\w+)\(", text, re.MULTILINE))
    return sorted(found)


def mtp(override):
    """By what SpeculativeConfig tells a model whose own layers predict tokens, and what it calls their number."""
    compared = {"model_type": set(), "architectures": set()}
    branches = [node for node in ast.walk(override) if isinstance(node, ast.If) and makes_mtp(node.body)]
    for node in (each for branch in branches for each in ast.walk(branch.test)):
        if isinstance(node, ast.Compare) and (left := ast.unparse(node.left)):
            field = "architectures" if "architecture" in left else "model_type"
            compared[field] |= (
                set(strings(node.comparators[0])) if left == "hf_config.model_type" or "arch" in left else set()
            )
    numbers = [
        call.args[1].value
        for node in ast.walk(override)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "n_predict"
        for call in [node.value]
        if isinstance(call, ast.Call) and len(call.args) > 1
    ]
    types = {name for name in compared["model_type"] if not name.endswith("mtp") and not name.endswith("assistant")}
    return {
        "model_types": sorted(types),
        "architectures": sorted(name for name in compared["architectures"] if "MTP" not in name),
        "layers": sorted(set(numbers)),
    }


def tokenized_as_written(package, places):
    """Classes to whose prompts vLLM adds no special tokens, where the tokenizer has a chat template."""
    folder = package / "model_executor" / "models"
    texts = {module: file.read_text() for module, _ in places.values() if (file := folder / f"{module}.py").is_file()}
    own = [
        text for text in texts.values() if "def get_default_tok_params" in text and "add_special_tokens=False" in text
    ]
    infos = {name for text in own for name in re.findall(r"^class (\w+ProcessingInfo)\(", text, re.MULTILINE)}
    used = {module for module, text in texts.items() if infos & set(re.findall(r"\w+ProcessingInfo\b", text))}
    return sorted(name for name, (module, _) in places.items() if module in used)


def untied(package, classes, places):
    """Classes that leave tying their embeddings to the method of quantization, where that of ModelOpt cannot."""
    base = [
        node for node in ast.walk(quantization(package, "base_config")) if getattr(node, "name", "") == "tie_weights"
    ]
    if not base or not isinstance(base[0].body[-1], ast.Raise):
        return []
    modules = (package / "model_executor" / "models").rglob("*.py")
    bodies = [node for file in modules for node in parsed(file).body if isinstance(node, ast.ClassDef)]
    texts = {node.name: ast.unparse(node) for node in bodies}
    tying = {name for name, text in texts.items() if ".tie_weights(" in text}
    found = {name for name, place in places.items() if {place[1], *classes.facts(*place)} & tying}
    # a model of several parts makes that of its texts by another class, which it names or takes from its configuration
    parts = {name: text for name, text in texts.items() if "init_vllm_registered_model(" in text}
    named = {name: set(re.findall(r"'(\w+ForCausalLM)'", text)) for name, text in parts.items()}
    return sorted(
        found | {name for name, (_, own) in places.items() if own in parts and (not named[own] or named[own] & found)}
    )


def fused(classes, places):
    """Classes by the layers that they compute as one: its name, and those of its parts in a checkpoint."""
    found = {}
    for name, place in sorted(places.items()):
        for whole, parts in classes.packed(*place).items():
            if len(parts) > 1:
                found.setdefault(" ".join([whole, *parts]), []).append(name)
    return found


def makes_mtp(body):
    """Whether statements turn a model's configuration into that of its predicting layers."""
    return any("mtp" in text.lower() for statement in body for text in strings(statement))


class Classes:
    """The bases, truthful attributes and fused layers of model classes, followed through the modules of vllm."""

    def __init__(self, package):
        self.package, self.known = package, {}

    def facts(self, module, name):
        """Names of all bases of a class, and of its attributes that are True."""
        return self._facts(self._file(module), name)

    def packed(self, module, name):
        """The `packed_modules_mapping` that a class has, of its own or of a base, where it is written as a literal."""
        return self._packed(self._file(module), name) or {}

    def _packed(self, file, name):
        if name in MARKERS or file is None:
            return None
        classes, imports = top_level(file)
        if name not in classes:
            module, level, original = imports.get(name, ("", 0, name))
            return self._packed(self._module(file, module, level), original) if module or level else None
        bases, _, own = classes[name]
        found = (self._packed(file, base) for base in bases if base != name)
        return own if own is not None else next((each for each in found if each is not None), None)

    def _facts(self, file, name):
        if name in MARKERS or file is None:
            return set()
        if (file, name) not in self.known:
            self.known[file, name] = set()
            self.known[file, name] = self._read(file, name)
        return self.known[file, name]

    def _read(self, file, name):
        classes, imports = top_level(file)
        if name not in classes:
            module, level, original = imports.get(name, ("", 0, name))
            return self._facts(self._module(file, module, level), original)
        bases, attributes, _ = classes[name]
        return attributes.union(bases, *(self._facts(file, base) for base in bases))

    def _module(self, file, module, level):
        if level:
            folder = file.parents[level - 1]
        elif module.partition(".")[0] == "vllm":
            folder, module = self.package, module.partition(".")[2]
        else:
            return None
        return existing(folder.joinpath(*module.split("."))) if module else None

    def _file(self, module):
        if module.startswith("vllm."):
            return existing(self.package.joinpath(*module.split(".")[1:]))
        return existing(self.package / "model_executor" / "models" / module)


def existing(path):
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


@cache
def top_level(file):
    """Bases, truthful attributes and fused layers by class of a module, and where its other names come from."""
    classes, imports = {}, {}
    for node in parsed(file).body:
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
            packed = [mapping for each in node.body if (mapping := packed_modules(each)) is not None]
            attributes = {name for each in node.body if (name := truthful(each))}
            classes[node.name] = (bases, attributes, packed[-1] if packed else None)
        elif isinstance(node, ast.ImportFrom):
            imports |= {each.asname or each.name: (node.module or "", node.level, each.name) for each in node.names}
    return classes, imports


def truthful(statement):
    """The name that a statement of a class body sets to True."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(statement.value, ast.Constant):
        return None
    target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
    return target.id if statement.value.value is True and isinstance(target, ast.Name) else None


def packed_modules(statement):
    """The mapping that a statement of a class body assigns; None if it assigns no literal one."""
    if not isinstance(statement, ast.Assign) or getattr(statement.targets[0], "id", "") != "packed_modules_mapping":
        return None
    try:
        return ast.literal_eval(statement.value)
    except ValueError:
        return None


@cache
def parsed(file):
    tree = ast.parse(file.read_text())
    gc.freeze()  # it stays: looking for garbage in the trees of whole wheels took half of their tests' time
    return tree


def quantization(package, name):
    return parsed(package / "model_executor" / "layers" / "quantization" / f"{name}.py")


def function(tree, name):
    """A method of one of a module's classes."""
    bodies = (each.body for each in tree.body if isinstance(each, ast.ClassDef))
    return next(node for body in bodies for node in body if isinstance(node, ast.FunctionDef) and node.name == name)


def assigned(tree, name):
    """The value of the first assignment to a name, at the top of a module or anywhere in a function."""
    for node in tree.body if isinstance(tree, ast.Module) else ast.walk(tree):
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(each, ast.Name) and each.id == name for each in targets) and node.value is not None:
            return node.value
    raise LookupError(name)


def literal_items(value):
    """Entries of a dictionary in source text whose keys and values are constants."""
    pairs_ = zip(value.keys, value.values, strict=True)
    return {key.value: ast.literal_eval(each) for key, each in pairs_ if isinstance(key, ast.Constant)}


def pairs(value):
    """Pairs of an OrderedDict([...]) in source text."""
    entries = value.args[0].elts if isinstance(value, ast.Call) else None
    if entries is None:
        return literal_items(value).items()
    return [ast.literal_eval(each) for each in entries if isinstance(each, ast.Tuple)]


def strings(value):
    """Every text in an expression, in order."""
    return list(
        dict.fromkeys(
            node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
    )


def keywords(call):
    return [each.arg for each in call.keywords if each.arg]


def first_tuple(tree):
    return strings(next(node for node in ast.walk(tree) if isinstance(node, ast.Tuple)))


def assigned_list(tree, name):
    return strings(assigned(tree, name))


def tokenizers(package):
    """Classes that a tokenizer_config.json may name."""
    found = {"PreTrainedTokenizerFast", "PreTrainedTokenizer"}
    for file in [*(package / "models").glob("*/tokenization_*.py"), *package.glob("tokenization_*.py")]:
        found |= set(re.findall(r"^class (\w*Token\w*)\(", file.read_text(), re.MULTILINE))
    return sorted(found)
