"""build without what it is made from."""

from slipway.tasks.steps import build
from tests.fakes.documents.step_workspace import StepWorkspace
from tests.fakes.releases import release
from tests.support.refused import refused


def test_an_absent_quantized_model_is_refused(tmp_path):
    with refused(what="there is no artifact quantize"):
        build.run(release(), StepWorkspace(tmp_path))


def test_a_quantized_model_without_configuration_is_refused_and_nothing_is_stored(tmp_path):
    workspace = StepWorkspace(tmp_path)
    (tmp_path / "quantized").mkdir()
    workspace.artifacts.put("quantize", release().plan.stages["quantize"].key, tmp_path / "quantized")

    with refused(what="has no config.json"):
        build.run(release(), workspace)

    assert [stage for stage, _ in workspace.artifacts.manifests] == ["quantize"]
