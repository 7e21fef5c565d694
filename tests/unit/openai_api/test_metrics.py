"""What OpenAI's API counts, and how it writes it for Prometheus."""

import asyncio
import shutil
import subprocess

import pytest
from aiohttp.test_utils import TestClient, TestServer

from slipway.tasks.contracts.api_keys import CLIENT_HEADER
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.wire.exposition import summed
from slipway.tasks.serving.openai_api.application import Routes
from slipway.tasks.serving.openai_api.generation.generate import Generation
from slipway.tasks.serving.openai_api.generation.inputs import Question, ServedModel
from tests.unit.openai_api.test_routes import CHAT, END, HELLO, Triton

NAME = "slipway_openai"


class Ticking:
    """Seconds that pass by each look at the clock."""

    def __init__(self, *times):
        self.times = list(times)

    def __call__(self):
        return self.times.pop(0)


def page_after(triton, *bodies, clock=None, headers=None, **options):
    async def run():
        routes = Routes(triton, ["demo"], "demo-1", **options, **({"clock": clock} if clock else {}))
        async with TestClient(TestServer(routes.application()), headers=headers) as client:
            for body in bodies:
                async with client.post("/v1/chat/completions", json=body) as response:
                    await response.read()
            async with client.get("/metrics") as response:
                assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return await response.text()

    return asyncio.run(run())


def values(page):
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line[0] != "#"}


@pytest.mark.parametrize("stream", [True, False])
def test_tokens_and_times_of_an_answer_are_counted(stream):
    # asked at 10, first text at 10.2, two pieces together at 10.3
    found = values(page_after(Triton(HELLO), {**CHAT, "stream": stream}, clock=Ticking(10.0, 10.2, 10.3)))

    assert found[f'{NAME}_requests_total{{model="demo",code="200"}}'] == 1
    assert found[f'{NAME}_prompt_tokens_total{{model="demo"}}'] == 4
    assert found[f'{NAME}_generation_tokens_total{{model="demo"}}'] == 3
    first, between = f"{NAME}_time_to_first_token_seconds", f"{NAME}_inter_token_latency_seconds"
    assert found[f'{first}_sum{{model="demo"}}'] == pytest.approx(0.2)
    assert found[f'{first}_bucket{{model="demo",le="0.1"}}'] == 0
    assert found[f'{first}_bucket{{model="demo",le="0.25"}}'] == 1
    assert found[f'{between}_count{{model="demo"}}'] == 2
    assert found[f'{between}_sum{{model="demo"}}'] == pytest.approx(0.1)
    assert found[f'{between}_bucket{{model="demo",le="+Inf"}}'] == 2


@pytest.mark.parametrize(("names_clients", "label"), [(True, ',client="alice"'), (False, "")])
def test_usage_is_counted_by_key_where_the_front_names_it(names_clients, label):
    """Without keys, the header is any client's own word."""
    found = values(page_after(Triton(HELLO), CHAT, headers={CLIENT_HEADER: "alice"}, names_clients=names_clients))

    assert found[f'{NAME}_requests_total{{model="demo"{label},code="200"}}'] == 1
    assert found[f'{NAME}_prompt_tokens_total{{model="demo"{label}}}'] == 4
    assert found[f'{NAME}_generation_tokens_total{{model="demo"{label}}}'] == 3


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ([InputError("too long")], 400),
        ([UnavailableError("gone")], 503),
        ([[{"text_output": "Hel", "finish_reason": ""}]], 503),  # without an end
    ],
)
def test_a_request_that_fails_is_counted_by_its_status(answer, code):
    found = values(page_after(Triton(answer), CHAT, {**CHAT, "stream": True}))

    assert found[f'{NAME}_requests_total{{model="demo",code="{code}"}}'] == 2


def test_a_client_that_leaves_is_counted_as_one():
    async def run():
        generation = Generation(Triton(HELLO))
        answers = generation.answers(ServedModel("demo", frozenset(), frozenset()), [Question({})], 1)
        await anext(answers)
        await answers.aclose()
        await generation.close()
        return generation.counted.requests

    assert asyncio.run(run()) == {("demo", "", 499): 1}


def test_a_request_that_never_reaches_the_model_is_not_counted():
    page = page_after(Triton(HELLO), {**CHAT, "model": "another"}, {"model": "demo"})

    assert values(page) == {}


def test_pages_of_several_processes_are_summed_family_by_family():
    one = '# HELP a What.\n# TYPE a counter\na{m="x"} 1\n# HELP b Too.\n# TYPE b counter\nb 2.5\n'
    two = '# HELP a What.\n# TYPE a counter\na{m="x"} 2\na{m="y"} 4\n# HELP b Too.\n# TYPE b counter\nb 1\n'

    assert summed([one, two]).splitlines() == [
        *("# HELP a What.", "# TYPE a counter", 'a{m="x"} 3.0', 'a{m="y"} 4.0'),
        *("# HELP b Too.", "# TYPE b counter", "b 3.5"),
    ]


def test_prometheus_reads_the_page():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool on this machine")
    page = page_after(Triton([[{**END, "text_output": 'a "quoted"\\\n'}]]), CHAT)

    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
