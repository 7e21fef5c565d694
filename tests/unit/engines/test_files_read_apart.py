"""A process of its own reads what a stranger wrote: it has limits, and nothing worth stealing."""

import json

from slipway.tasks.engines.checkpoint.apart import run_apart

PROGRAM = "import json, os; print(json.dumps(dict(os.environ)))"


def test_the_process_has_no_secret_in_its_environment(tmp_path, monkeypatch):
    (tmp_path / "prints_environment.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "hf_planted")

    found = json.loads(run_apart("prints_environment", [], what="it broke", remedy="none"))

    assert found["PYTHONPATH"] == str(tmp_path)
    assert "hf_planted" not in found.values()
