"""Templates become a Triton repository, or a clear refusal."""

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.serving.rendered.repository import check_repository, render
from tests.support.refused import refused

TENSORS = 'input { name: "i" data_type: TYPE_STRING dims: 1 } output { name: "o" data_type: TYPE_STRING dims: 1 }'
CONFIG = (
    TENSORS
    + """
name: "{{ name }}"
backend: "python"
max_batch_size: 0
parameters { key: "limit" value { string_value: "{{ limits.max_batch_size }}" } }
"""
)
VALUES = {"name": "demo", "limits": {"max_batch_size": 8}}


@pytest.fixture
def templates(tmp_path):
    version = tmp_path / "templates" / "openvino" / "model" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt.j2").write_text(CONFIG)
    (version / "model.py").write_text("brackets = f'{{verbatim}}'\n")
    return tmp_path / "templates"


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_the_model_folder_takes_the_releases_name(templates, out):
    assert render(templates, "openvino", VALUES, out) == ["demo"]
    assert 'name: "demo"' in (out / "demo" / "config.pbtxt").read_text()
    assert 'string_value: "8"' in (out / "demo" / "config.pbtxt").read_text()


def test_a_file_without_the_suffix_is_copied_as_it_is(templates, out):
    render(templates, "openvino", VALUES, out)

    assert (out / "demo" / "1" / "model.py").read_text() == "brackets = f'{{verbatim}}'\n"


def test_another_folder_keeps_its_name(templates, out):
    other = templates / "openvino" / "postprocessing" / "1"
    other.mkdir(parents=True)
    (other / "model.py").write_text("")
    (other.parent / "config.pbtxt").write_text(f'name: "postprocessing" backend: "python" {TENSORS}')

    assert render(templates, "openvino", VALUES, out) == ["demo", "postprocessing"]


@pytest.mark.parametrize("left", ["__pycache__/model.cpython-311.pyc", ".mypy_cache/cache.db", ".swp"])
def test_what_tools_leave_beside_a_template_does_not_travel(templates, out, left):
    file = templates / "openvino" / "model" / "1" / left
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"")

    render(templates, "openvino", VALUES, out)

    assert not (out / "demo" / "1" / left).exists()


def test_a_value_that_the_engine_does_not_give_is_refused(templates, out):
    with pytest.raises(InputError) as caught:
        render(templates, "openvino", {"name": "demo"}, out)

    assert "'limits' is undefined" in caught.value.what
    assert caught.value.expected == "one of name"


@pytest.mark.parametrize("leftover", ["${engine_dir}", "{{ '{{' }} name", "{{ '{%' }} if"])
def test_a_mark_of_a_template_left_behind_is_refused(templates, out, leftover):
    (templates / "openvino" / "model" / "config.pbtxt.j2").write_text(f'{CONFIG}# "{leftover}"\n')

    with pytest.raises(InputError) as caught:
        render(templates, "openvino", VALUES, out)

    assert caught.value.what.endswith("still has template marks")


def test_a_broken_template_is_refused(templates, out):
    (templates / "openvino" / "model" / "config.pbtxt.j2").write_text("{% if name %}")

    with pytest.raises(InputError) as caught:
        render(templates, "openvino", VALUES, out)

    assert "config.pbtxt.j2 is not valid Jinja2" in caught.value.what


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name: "demo" max_batch_size: many', "is not a model configuration of Triton"),
        ('name: "demo" no_such_field: 1', "is not a model configuration of Triton"),
        (f'name: "another" backend: "python" {TENSORS}', "does not name the model as its folder does"),
        (f'name: "demo" {TENSORS}', "leaves out backend"),
        ('name: "demo" backend: "vllm"', "leaves out input, output"),
        (f'name: "demo" backend: "python" {TENSORS} input {{ name: "j" }}', "leaves out data_type and dims"),
    ],
)
def test_a_configuration_that_triton_would_refuse_is_refused(templates, out, text, message):
    (templates / "openvino" / "model" / "config.pbtxt.j2").write_text(text)

    with pytest.raises(InputError) as caught:
        render(templates, "openvino", VALUES, out)

    assert message in caught.value.what


def test_a_model_without_configuration_is_refused(templates, out):
    (templates / "openvino" / "model" / "config.pbtxt.j2").unlink()

    with pytest.raises(InputError) as caught:
        render(templates, "openvino", VALUES, out)

    assert caught.value.what == "demo/config.pbtxt is missing"


def test_a_model_without_a_version_is_refused(out):
    (out / "demo").mkdir()
    (out / "demo" / "config.pbtxt").write_text(f'name: "demo" backend: "python" {TENSORS}')

    with pytest.raises(InputError) as caught:
        check_repository(out)

    assert caught.value.expected == "demo/1"


def test_an_empty_repository_is_refused(out):
    with pytest.raises(InputError) as caught:
        check_repository(out)

    assert caught.value.what == "the repository has no model"


def test_a_kind_without_templates_is_refused(templates, out):
    with refused(what="no templates for engine kind vllm"):
        render(templates, "vllm", VALUES, out)
