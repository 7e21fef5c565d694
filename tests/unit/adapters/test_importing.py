"""Modules that toolkits import and that a step does not use."""

import sys

import pytest

from slipway.tasks.adapters.importing import at_first_use
from slipway.tasks.adapters.judge.expectations import Check, validate
from tests.support.imports import modules_after

NAME = "package_of_a_test.slow"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose module says when it runs."""
    folder = tmp_path / "package_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "slow.py").write_text("import sys\nsys.ran_slow = True\nVALUE = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "ran_slow", False, raising=False)
    yield
    for name in [name for name in sys.modules if name.startswith("package_of_a_test")]:
        del sys.modules[name]


@pytest.mark.parametrize("importing", [f"import {NAME} as slow", "from package_of_a_test import slow"])
def test_a_module_that_is_only_imported_does_not_run(package, importing):
    at_first_use(NAME)
    own = {}

    exec(importing, own)  # noqa: S102 - ours
    assert not sys.ran_slow

    assert own["slow"].VALUE == 7
    assert sys.ran_slow
    assert sys.modules[NAME].VALUE == 7


def test_a_module_that_has_run_is_left_alone(package):
    exec(f"import {NAME}", {})  # noqa: S102 - ours
    before = sys.modules[NAME]

    at_first_use(NAME)

    assert sys.modules[NAME] is before


def test_a_gate_does_not_run_scipy_stats():
    code = (
        "from slipway.tasks.adapters.judge.expectations import Check, validate; validate([Check('a', [1.0], 0.0, 2.0)])"
    )

    assert "scipy.stats._stats_py" not in modules_after(code)
    assert "scipy.stats._stats_py" in modules_after(f"{code}; from scipy import stats; stats.norm")


def test_expectations_that_need_scipy_still_have_it():
    validate([Check("one", [1.0, 2.0], 0.0, 3.0)])
    import great_expectations as gx
    import pandas as pd

    frame = pd.DataFrame({"x": [0.1, 0.4, 0.6, 0.9] * 5})
    batch = gx.get_context(mode="ephemeral").data_sources.pandas_default.read_dataframe(frame)
    even = {"bins": [0.0, 0.5, 1.0], "weights": [0.5, 0.5]}
    expected = gx.expectations.ExpectColumnKLDivergenceToBeLessThan(column="x", partition_object=even, threshold=0.1)

    assert batch.validate(expected).success
