"""`slipway compare`: two servers' answers to the same prompts, side by side."""

import json

import pytest

from slipway.cli.json_documents import CompareDocument
from tests.fakes.servers.triton_http import TritonHttpServer


def answering(text):
    return [{"text_output": text}, {"text_output": "", "finish_reason": "stop"}]


@pytest.fixture
def servers():
    with (
        TritonHttpServer(model="a", answers=answering("It is Paris.")) as a,
        TritonHttpServer(model="b", answers=answering("It is <Lyon>.")) as b,
    ):
        yield a, b


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Where & why {number}?"}) + "\n" for number in range(3)))
    return file


@pytest.fixture
def run(slipway, servers, prompts):
    sides = [f"{server.model}@127.0.0.1:{server.port}" for server in servers]
    return lambda *options: slipway("compare", *sides, str(prompts), *options)


def test_every_prompt_goes_to_both_sides_in_turn(run, servers):
    code, printed = run()

    assert code == 0, printed
    for server, text in zip(servers, ("It is Paris.", "It is <Lyon>."), strict=True):
        assert [request["text_input"] for request in server.asked] == [f"Where & why {n}?" for n in range(3)]
        assert printed.count(text) == 3
    assert "0 of 3 answers are the same" in printed
    assert printed.count("median first piece") == 2


def test_both_sides_answers_are_one_document(run, servers):
    code, printed = run("--json")

    document = CompareDocument.model_validate_json(printed.out)
    answers = [[answer.text for answer in prompt.answers] for prompt in document.prompts]
    assert (code, answers) == (0, [["It is Paris.", "It is <Lyon>."]] * 3)
    assert document.sides == [f"{server.model}@127.0.0.1:{server.port}" for server in servers]


def test_the_page_marks_what_differs_and_runs_nothing_of_an_answer(run, tmp_path):
    file = tmp_path / "page.html"

    assert run("--html", str(file))[0] == 0

    page = file.read_text()
    assert "It is <mark>Paris.</mark>" in page
    assert "It is <mark>&lt;Lyon&gt;.</mark>" in page
    assert "Where &amp; why 0?" in page
    assert "<Lyon>" not in page
    assert "src=" not in page
    assert "href=" not in page
    assert "color-scheme: light dark" in page


def test_the_page_has_a_long_answer_to_its_end(run, servers, tmp_path):
    servers[0].answers = answering(f"{'many words ' * 2000}and an end.")
    file = tmp_path / "page.html"

    assert run("--html", str(file))[0] == 0

    assert "and an end." in file.read_text()


def test_the_same_answers_are_counted(run, servers):
    servers[1].answers = servers[0].answers

    assert "3 of 3 answers are the same" in run()[1]


def test_a_refused_prompt_is_shown_beside_the_other_sides_answer(run, servers, tmp_path):
    servers[1].refusal = (400, "the prompt is too long")
    file = tmp_path / "page.html"

    code, printed = run("--html", str(file))

    assert code == 1
    assert "3 failed" in printed
    assert file.read_text().count("the prompt is too long") >= 3
    assert file.read_text().count(">It is Paris.<small>") == 3


def test_a_page_that_cannot_be_written_is_a_wrong_input(run, tmp_path):
    code, printed = run("--html", str(tmp_path / "no-such-folder" / "page.html"))

    assert code == 65
    assert "No such file or directory" in printed
