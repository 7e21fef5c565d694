import json
import math

import pytest
from generation.requests.question import Question, RefusedError, check, job
from generation.runtime import Controls
from generation.settings import Limits, SettingsError, check_numpy, engine_of, read_settings

LIMITS = Limits(max_input_tokens=10, max_sequence_tokens=16, default_max_tokens=100)
PARAMETERS = {
    "engine_folder": "engine",
    "chat_template": "apply",
    "max_batch_size": "4",
    "max_input_tokens": "10",
    "max_sequence_tokens": "16",
    "scheduler": '{"num_kv_blocks": 4}',
    "properties": "{}",
}


def test_a_plain_question_may_fill_the_room_behind_its_prompt():
    taken = job(Question("hi"), [1] * 6, LIMITS)

    assert taken.sampling.max_tokens == 10
    assert taken.sampling.temperature == 0.0


@pytest.mark.parametrize(("asked", "taken"), [(1e-45, 0), (1e-40, 0), (9e-6, 0), (1e-5, 1e-5), (0.7, 0.7)])
def test_a_temperature_that_32_bits_cannot_divide_by_is_none(asked, taken):
    """OpenVINO GenAI chooses any token at 1e-40; torch's sampler on a GPU ends its process at infinite logits."""
    assert job(Question("hi", temperature=asked), [1], LIMITS).sampling.temperature == taken


def test_the_models_own_default_bounds_an_answer_nobody_bounded():
    assert job(Question("hi"), [1], Limits(10, 16, default_max_tokens=5)).sampling.max_tokens == 5


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (Question(""), "the prompt is empty"),
        (Question(" \n"), "the prompt is empty"),
        (
            Question("hi", controls=Controls(ignore_eos=True, grammar="x")),
            "ignore_eos and json_schema exclude one another",
        ),
        (Question("hi", stop_words=("bye", "")), "stop_words has an empty text"),
        (Question("hi", prompt_ids=(1,)), "prompt_ids are given with text_input"),
        (Question("", prompt_ids=(1,), messages=({"role": "user", "content": "x"},)), "prompt_ids are given with"),
        (Question("", prompt_ids=(1,), template_arguments={"a": 1}), "prompt_ids are given with"),
        (Question("hi", max_tokens=0), "max_tokens is 0; expected at least 1"),
        (Question("hi", max_tokens=-3), "max_tokens is -3"),
        (Question("hi", temperature=-0.5), "temperature is -0.5"),
        (Question("hi", temperature=math.nan), "temperature is nan"),
        (Question("hi", temperature=math.inf), "temperature is inf"),
        (Question("é" * 81), "the prompt is 162 bytes long; this model takes at most 10 tokens, of at most 16 bytes"),
        (Question("", messages=({"role": "user", "content": "x" * 80},) * 3), "the prompt is 240 bytes long"),
    ],
)
def test_a_question_that_is_wrong_in_itself_is_refused(question, message):
    with pytest.raises(RefusedError, match=message):
        check(question, LIMITS, 16)


def test_a_text_that_its_longest_tokens_could_hold_is_not_refused_unread():
    check(Question("x" * 160), LIMITS, 16)
    check(Question("x" * 161), LIMITS, None)


def test_a_prompt_is_refused_by_its_first_token_too_many_and_never_cut():
    assert len(job(Question("hi"), [1] * 10, LIMITS).prompt) == 10
    with pytest.raises(RefusedError, match="is 11 tokens long, chat template included; this model takes at most 10"):
        job(Question("hi"), [1] * 11, LIMITS)


def test_prompt_and_answer_together_are_bounded():
    assert job(Question("hi", max_tokens=10), [1] * 6, LIMITS).sampling.max_tokens == 10
    with pytest.raises(RefusedError, match=r"6 \+ 11 tokens; this model holds 16. Ask for at most 10"):
        job(Question("hi", max_tokens=11), [1] * 6, LIMITS)


def arguments(repository, **changed):
    parameters = {key: {"string_value": value} for key, value in {**PARAMETERS, **changed}.items() if value is not None}
    return {
        "model_config": json.dumps({"parameters": parameters}),
        "model_repository": str(repository),
        "model_version": "3",
    }


def test_the_engine_is_found_below_the_version_that_triton_loads(tmp_path):
    (tmp_path / "3" / "engine").mkdir(parents=True)

    settings = read_settings(arguments(tmp_path))

    assert settings.engine == tmp_path / "3" / "engine"
    assert settings.document("scheduler") == {"num_kv_blocks": 4}
    assert settings.apply_chat_template
    assert not read_settings(arguments(tmp_path, chat_template="none")).apply_chat_template


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_batch_size": "many"}, "wrong parameter"),
        ({"chat_template": "maybe"}, "chat_template apply or none"),
        ({"max_input_tokens": None}, "no parameter 'max_input_tokens'"),
        ({"engine_folder": "elsewhere"}, "elsewhere is not there"),
    ],
)
def test_a_model_with_wrong_settings_says_which(tmp_path, changed, message):
    (tmp_path / "3" / "engine").mkdir(parents=True)

    with pytest.raises(SettingsError, match=message):
        read_settings(arguments(tmp_path, **changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scheduler": "{"}, "wrong parameter scheduler"),
        ({"scheduler": "[1]"}, "expected a JSON object"),
        ({"scheduler": None}, "no parameter 'scheduler'"),
    ],
)
def test_a_parameter_of_one_engine_alone_is_refused_when_it_is_asked_for(tmp_path, changed, message):
    (tmp_path / "3" / "engine").mkdir(parents=True)
    settings = read_settings(arguments(tmp_path, **changed))

    with pytest.raises(SettingsError, match=message):
        settings.document("scheduler")


def test_an_engine_folder_may_be_absolute(tmp_path):
    (tmp_path / "elsewhere").mkdir()

    assert engine_of(arguments(tmp_path / "here", engine_folder=str(tmp_path / "elsewhere"))) == tmp_path / "elsewhere"


def test_numpy_2_is_refused():
    check_numpy("1.26.4")
    with pytest.raises(SettingsError, match=r"numpy is 2\.4\.6"):
        check_numpy("2.4.6")
