"""Compiles a request's grammar before the engine does, in a process of its own: what fails or lasts, fails there.

The judge is OpenVINO GenAI itself with the engine's tokenizer, over a model of no weights that knows nothing. It runs
the code that the engine will run at the first token of the answer, which all other requests wait for.
"""

import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from generation.requests.question import RefusedError
from generation.workers.worker import Budget, BusyError, LimitError, UnansweredError, Worker, WorkError, serve

KEPT = 1024
"""Verdicts that are remembered."""
CPU_S = 1.0
"""What a grammar may take of a CPU. The engine takes it once more, and its other answers wait so long."""
BUDGET = Budget(cpu_s=10.0, seconds=10.0, memory_bytes=2 << 30)


class GrammarJudge:
    """Knows which grammars the engine can compile. Called from several threads."""

    def __init__(self, engine: Path) -> None:
        self._worker = Worker([__file__, str(engine)], BUDGET)
        self._lock = threading.Lock()
        self._verdicts: OrderedDict[str, str] = OrderedDict()

    def knows(self, grammar: str) -> bool:
        """Whether `check` answers at once."""
        with self._lock:
            return grammar in self._verdicts

    def check(self, grammar: str) -> None:
        """Have a grammar compiled, or remember what became of it.

        Raises:
            RefusedError: the engine cannot compile it, or it would take too long.
            BusyError: that is not known, for no answer came. Nothing is remembered.
        """
        with self._lock:
            verdict = self._verdicts.get(grammar)
        if verdict is None:
            verdict = self._verdict(grammar)
            with self._lock:
                self._verdicts[grammar] = verdict
                while len(self._verdicts) > KEPT:
                    self._verdicts.popitem(last=False)
        if verdict:
            raise RefusedError(f"json_schema: the schema {verdict}. Make it smaller, or simpler.")

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _verdict(self, grammar: str) -> str:
        try:
            cpu_s = float(self._worker.ask(grammar))
        except UnansweredError as error:
            raise BusyError(f"json_schema: the schema was not compiled: it {error}. Ask again.") from error
        except LimitError as error:
            return f"does not compile: it {error}"
        except WorkError as error:
            return f"fails: {error}"
        return f"takes {cpu_s:.1f} s of a CPU to compile; the limit is {CPU_S:g} s" if cpu_s > CPU_S else ""


def prepare(engine: Path) -> Callable[[str], float]:
    """A function that compiles a grammar, and tells how many seconds of a CPU that took."""
    import openvino as ov
    import openvino_genai as genai

    tokenizer = genai.Tokenizer(str(engine))
    config = genai.GenerationConfig()
    config.max_new_tokens = 1
    config.set_eos_token_id(tokenizer.get_eos_token_id())
    xml, weights = empty_model(np.zeros(1 + max(tokenizer.get_vocab().values())))
    pipeline = genai.LLMPipeline(xml, weights, tokenizer, "CPU", config, ATTENTION_BACKEND="SDPA")
    prompt = ov.Tensor(np.zeros((1, 1), dtype=np.int64))

    def compile_grammar(grammar: str) -> float:
        chosen = pipeline.get_generation_config()
        chosen.structured_output_config = genai.StructuredOutputConfig(grammar=grammar)
        began = time.process_time()
        pipeline.generate(prompt, chosen)
        return time.process_time() - began

    compile_grammar('root ::= "null"')
    return compile_grammar


def empty_model(logits: Any) -> tuple[str, Any]:
    """A language model whose next token depends on nothing, as OpenVINO's text and weights.

    Args:
        logits: that of each token, of shape [tokens].
    """
    import openvino as ov
    from openvino import opset13 as op

    names = {"input_ids": [-1, -1], "attention_mask": [-1, -1], "beam_idx": [-1]}
    inputs = [op.parameter(shape, ov.Type.i32 if name == "beam_idx" else ov.Type.i64) for name, shape in names.items()]
    for name, given in zip(names, inputs, strict=True):
        given.output(0).get_tensor().set_names({name})
    zero, flat = op.constant(np.float32(0)), op.constant(np.array([-1], dtype=np.int64))
    logits = op.add(
        op.multiply(op.convert(op.unsqueeze(inputs[0], op.constant(np.int64(2))), ov.Type.f32), zero),
        op.constant(np.asarray(logits, dtype=np.float32).reshape(1, 1, -1)),
    )
    for given in inputs[1:]:  # an input that nothing reads would be no input of the compiled model
        summed = op.reduce_sum(op.reshape(given, flat, special_zero=False), op.constant(np.int64(0)), keep_dims=False)
        logits = op.add(logits, op.multiply(op.convert(summed, ov.Type.f32), zero))
    logits.output(0).get_tensor().set_names({"logits"})
    with tempfile.TemporaryDirectory() as folder:
        ov.save_model(ov.Model([op.result(logits)], inputs, "empty"), f"{folder}/model.xml", compress_to_fp16=False)
        return Path(folder, "model.xml").read_text(), ov.Tensor(np.fromfile(f"{folder}/model.bin", dtype=np.uint8))


def main(engine: str, descriptor: str, memory_bytes: str) -> int:
    """Compile until the other end closes."""
    return serve(int(descriptor), int(memory_bytes), lambda: prepare(Path(engine)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
