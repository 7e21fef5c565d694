"""LoRA adapters of a live model through Airflow: added, replaced, refused, removed and rolled back, without a release.

The engine kind is vllm, and vllm_stand_in computes in vLLM's place, adapters included.
"""

import json
import os
import shutil
import subprocess

import numpy as np
import openai
import pytest
import yaml
from safetensors.numpy import save_file

from local.processes import free_port
from tests.fixtures.adapters import adapter_config
from tests.local.chain.own_stack import own_chain
from tests.local.chain.whole_chain import MODEL
from tests.support.paths import ENVIRONMENTS, HUB, REPOSITORY
from tests.support.waiting import until
from tests.vllm import laptop

pytestmark = pytest.mark.timeout(3600)

STAND_IN = REPOSITORY / "tests" / "local" / "stack" / "vllm_stand_in"
RANK = 2
QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
CONFIG = json.loads((HUB / "slipway" / "demo-llama" / "v1" / "config.json").read_text())


def write_adapter(folder, strength):
    """An adapter as PEFT saves it; without strength it changes nothing."""
    random, hidden = np.random.default_rng(RANK), CONFIG["hidden_size"]
    tensors = {}
    for number in range(CONFIG["num_hidden_layers"]):
        layer = f"base_model.model.model.layers.{number}.self_attn.q_proj"
        tensors[f"{layer}.lora_A.weight"] = random.normal(size=(RANK, hidden)).astype(np.float32)
        tensors[f"{layer}.lora_B.weight"] = (strength * random.normal(size=(hidden, RANK))).astype(np.float32)
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(adapter_config(RANK, ["q_proj"])))
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The fixtures' Hub with a repository of adapters besides."""
    folder = tmp_path_factory.mktemp("hub")
    shutil.copytree(HUB, folder / "fixtures", symlinks=True)
    repository = folder / "fixtures" / "slipway" / "demo-adapter"
    for revision, strength in (("v1", 0.0), ("odd", 4.0)):
        write_adapter(repository / revision, strength)
    names = ("v1", "odd")
    declared = {
        "refs": {"branches": {"main": "v1"}, "tags": {name: name for name in names}},
        "revisions": [{"name": name, "files": name} for name in names],
    }
    (repository / "repository.yaml").write_text(yaml.safe_dump(declared))
    port = free_port()
    arguments = ["--fixtures", folder / "fixtures", "--state", folder / "state", "--port", str(port)]
    with subprocess.Popen(
        [ENVIRONMENTS / "local" / "bin" / "python", "-m", "local.hub", *arguments], cwd=REPOSITORY
    ) as server:
        yield f"http://127.0.0.1:{port}"
        server.terminate()


class Specs:
    """The spec in the folder that Airflow reads."""

    def __init__(self, file):
        self.file, self.spec = file, yaml.safe_load(file.read_text())

    def name(self, *adapters):
        """Have the spec name these adapters."""
        self.file.write_text(yaml.safe_dump({**self.spec, "adapters": list(adapters)}, sort_keys=False))


def changes():
    """Sections of the spec: room for two adapters in two pods, and a gate that is soon done."""
    of_vllm = laptop.spec()
    return {
        "engine": of_vllm["engine"] | {"options": {"enforce_eager": True, "max_loras": 2, "max_lora_rank": 8}},
        "serving": {"replicas": {"min": 2, "max": 2}, "ready_timeout_s": laptop.READY_S},
        "gate": {
            "smoke": of_vllm["gate"]["smoke"],
            "benchmark": {"concurrency": [1], "requests": 4, "warmup": 1},
            "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}],
        },
        "rollout": {"strategy": "blue-green", "keep": 2},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stack") / "documents"


@pytest.fixture(scope="module")
def chain(hub, folder, tmp_path_factory):
    # Python within Triton's stub ignores PYTHONPATH, and looks into the folder in which the server was started
    image = {"path_prefix": ["${ENVS}/triton/bin"], "working_dir": str(STAND_IN)}
    options = laptop.options(folder, {"OPENBLAS_NUM_THREADS": "1"}, changes=changes(), image=image, gpus=4)
    with own_chain(tmp_path_factory.mktemp("chain") / "scratch", *options, "--hub", hub) as made:
        yield made


def adapter(revision, answer, match="exact"):
    smoke = [{"prompt": QUESTION, "answer": answer, "match": match}]
    return {"name": "polite", "repo": "slipway/demo-adapter", "revision": revision, "smoke": smoke}


def client_of(chain):
    address = chain.address()
    url = f"http://{address.host}:{address.ports['http']}/v1"
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0)


def answer(chain, model):
    """Asked often enough that each pod is asked; there is one answer."""
    messages, found = [{"role": "user", "content": QUESTION}], set()
    for _ in range(6):
        with client_of(chain) as client:
            made = client.chat.completions.create(model=model, messages=messages, temperature=0)
        found.add(made.choices[0].message.content)
    (only,) = found
    return only


def listed(chain):
    with client_of(chain) as client:
        return sorted(model.id for model in client.models.list().data)


def slipway(chain, *arguments):
    command = [REPOSITORY / "bin" / "slipway", *arguments]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **chain.environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_adapters_come_and_go_while_the_model_is_live(chain, folder):
    specs, polite = Specs(folder / "specs" / "demo.yaml"), f"{MODEL}:polite"
    released = chain.release("v1")
    assert released.run.state == "success", {name: result.summary for name, result in released.results.items()}
    release, pods = chain.live(), chain.cluster.endpoints(MODEL)
    assert listed(chain) == [MODEL]

    def run(*adapters):
        specs.name(*adapters)
        return chain.follow(chain.trigger(f"adapters__{MODEL}"))

    # added
    view = run(adapter("v1", ANSWER))
    assert view.run.state == "success", {name: result.summary for name, result in view.results.items()}
    assert (listed(chain), answer(chain, polite)) == ([MODEL, polite], ANSWER)

    # refused: it does not answer its own question
    view = run(adapter("odd", ANSWER))
    assert (view.run.state, view.results["load-adapters"].data["verdict"]) == ("failed", "failed")
    assert (listed(chain), answer(chain, polite)) == ([MODEL, polite], ANSWER)

    # replaced, of which the model itself notices nothing
    view = run(adapter("odd", ".", "regex"))
    assert view.run.state == "success", {name: result.summary for name, result in view.results.items()}
    assert answer(chain, polite) != answer(chain, MODEL) == ANSWER

    # a pod that starts has it
    assert (chain.live(), chain.cluster.endpoints(MODEL)) == (release, pods)
    gone = min(pods)
    chain.core.delete_namespaced_pod(gone, chain.site.kubernetes.serving_namespace)
    until(
        lambda: gone not in chain.cluster.endpoints(MODEL) and len(chain.cluster.endpoints(MODEL)) == len(pods),
        timeout_s=900,
    )
    assert (listed(chain), answer(chain, polite) != ANSWER) == ([MODEL, polite], True)

    # rolled back, by the command
    done = slipway(chain, "adapters", MODEL, "--previous", "--reason", "it is odd")
    assert (done.returncode, "serves adapters: polite" in done.stdout) == (0, True), done.stdout + done.stderr
    assert answer(chain, polite) == ANSWER
    status = json.loads(slipway(chain, "status", MODEL, "--json").stdout)["models"][0]
    assert [(each["name"], each["revision"], each["listed"]) for each in status["adapters"]] == [("polite", "v1", True)]

    # removed
    assert run().run.state == "success"
    assert listed(chain) == [MODEL]
    with pytest.raises(openai.NotFoundError, match=f"there is {MODEL}"):
        answer(chain, polite)
    assert chain.live() == release
