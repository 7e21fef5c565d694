"""OpenVINO GenAI's pipeline called directly: the peer of bench.serving.serving, in the serving environment.

    .slipway/envs/triton/bin/python -m bench.serving.pipeline ENGINE

Reads a round as a line of JSON, {"answers": N, "clients": [{"prompt": TEXT, "tokens": N}, ...]}, and writes its result
as one, {"tokens": N, "seconds": S, "latencies_ms": [...]}. Each client asks again as soon as its answer has ended.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Pipeline:
    """The engine with the settings that its release is served with, and no code of Slipway's around it."""

    def __init__(self, engine: Path) -> None:
        import openvino_genai as genai  # noqa: PLC0415 - the environments that check types lack it

        settings = json.loads((engine / "template_values.json").read_text())
        scheduler = genai.SchedulerConfig()
        for name, value in settings["scheduler"].items():
            setattr(scheduler, name, value)
        # the threads that model_repository_templates/openvino takes where the release names none
        properties = {"INFERENCE_NUM_THREADS": 1, **settings["properties"]}
        self._pipeline = genai.ContinuousBatchingPipeline(str(engine), scheduler, "CPU", properties)
        self._tokenizer, self._running = self._pipeline.get_tokenizer(), genai.GenerationFinishReason.NONE
        self._number = 0

    def play(self, clients: Sequence[Mapping[str, Any]], answers: int) -> dict[str, Any]:
        """Give each client `answers` answers: tokens of all of them, seconds, and milliseconds of each."""
        left = [answers] * len(clients)
        latencies_ms: list[float] = []
        tokens, began = 0, time.perf_counter()
        handles = {number: self._ask(client) for number, client in enumerate(clients)}
        while handles:
            self._pipeline.step()
            for number, (handle, asked_at, ids) in list(handles.items()):
                if not handle.can_read():
                    continue
                output = next(iter(handle.read().values()))
                ids.extend(output.generated_ids)
                if output.finish_reason == self._running:
                    continue
                self._tokenizer.decode([ids])
                latencies_ms.append((time.perf_counter() - asked_at) * 1000)
                tokens, left[number] = tokens + len(ids), left[number] - 1
                del handles[number]
                if left[number]:
                    handles[number] = self._ask(clients[number])
        return {"tokens": tokens, "seconds": time.perf_counter() - began, "latencies_ms": latencies_ms}

    def _ask(self, client: Mapping[str, Any]) -> tuple[Any, float, list[int]]:
        asked_at = time.perf_counter()
        text = self._tokenizer.apply_chat_template([{"role": "user", "content": client["prompt"]}], True)
        prompt = self._tokenizer.encode(text, add_special_tokens=False).input_ids
        config = self._pipeline.get_config()
        config.do_sample, config.max_new_tokens, config.min_new_tokens = False, client["tokens"], client["tokens"]
        self._number += 1
        return self._pipeline.add_request(self._number, prompt, config), asked_at, []


def main(engine: Path) -> None:
    """Answer rounds until the input ends."""
    pipeline = Pipeline(engine)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(pipeline.play(asked["clients"], asked["answers"])), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
