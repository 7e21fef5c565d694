"""Multiple choice as lm_eval asks it: `python -m tests.local.serving.openai_routes.run_loglikelihood BASE MODEL PACKAGES QUESTIONS`.

Runs in the environment harness; the tokenizer's packages are those of another one. Prints what lm_eval found as JSON.
"""

import json
import sys


def main(base, model, packages, questions):
    sys.path.append(packages)  # behind the environment's own
    import lm_eval
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    from lm_eval.tasks import TaskManager

    client = LocalCompletionsAPI(
        base_url=f"{base}/completions", model="demo", tokenizer=model, tokenizer_backend="huggingface"
    )
    task = {
        "task": "choices",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": questions}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{target}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    found = lm_eval.simple_evaluate(
        client, tasks=[task], task_manager=TaskManager(include_defaults=False), log_samples=True
    )
    samples = [[choice[0] for choice in sample["resps"]] for sample in found["samples"]["choices"]]
    print(json.dumps({"accuracy": found["results"]["choices"]["acc,none"], "samples": samples}))


if __name__ == "__main__":
    main(*sys.argv[1:])
