"""The client of Airflow's REST API: logging in, and what it makes of answers that are no answers."""

import httpx
import pytest

from slipway.cli.airflow import session
from slipway.cli.airflow.api import Airflow, NoSuchDagError
from slipway.cli.airflow.login import Login
from slipway.cli.airflow.patience import PATIENCE_S, Silence
from slipway.tasks.contracts.errors import InputError, UnavailableError
from tests.fakes.servers.airflow_server import PASSWORD, USER, Frame, Script, ScriptedRun
from tests.fakes.servers.hostile_proxy import HostileProxy
from tests.unit.cli.runs import DAG, failed, promoted


def connected(airflow, password=PASSWORD):
    return Airflow(airflow.address, Login(USER, password))


def test_one_token_serves_many_requests(airflow):
    airflow.dags[DAG] = promoted()

    with connected(airflow) as api:
        run = api.trigger(DAG, {})
        api.tasks(run)
        api.run(DAG, run.run_id)

    assert airflow.count("POST /auth/token") == 1


def test_the_newest_runs_of_many_models_take_one_request_each_time_that_a_model_fills_a_page(airflow):
    airflow.page_limit = 3
    dags = [f"release__m{number}" for number in range(7)]
    for dag in dags:
        airflow.dags[dag] = promoted()
    runs = [("release__m0", "old"), ("release__m1", "one")] + [("release__m0", f"new-{number}") for number in range(3)]
    for dag, run_id in runs:
        airflow.runs[dag, run_id] = ScriptedRun(run_id, {}, promoted())

    with connected(airflow) as api:
        listed, newest = api.dags("release__"), api.newest_runs(dags)

    assert listed == dags
    assert {dag: run.run_id for dag, run in newest.items()} == {"release__m0": "new-2", "release__m1": "one"}
    assert airflow.count("GET /api/v2/dags") == 3
    assert airflow.count("POST /api/v2/dags/~/dagRuns/list") == 2


def test_a_token_that_has_expired_is_renewed(airflow):
    airflow.dags[DAG] = promoted()

    with connected(airflow) as api:
        api.runs(DAG, 1)
        airflow.tokens[:] = ["another"]
        assert api.runs(DAG, 1) == []

    assert airflow.count("POST /auth/token") == 2


@pytest.mark.timeout(60)
def test_headers_that_never_end_are_not_waited_for_beyond_the_commands_own_time(airflow, monkeypatch):
    """Four answers of half a minute each would be two minutes after --timeout 1."""
    monkeypatch.setattr(session, "LEAST_ANSWER_S", 3.0)
    airflow.dags[DAG] = promoted()

    with HostileProxy(int(airflow.address.rpartition(":")[2]), 0) as proxy:
        proxy.at, proxy.wrong = 2, "slow headers"
        with (
            Airflow(f"http://{proxy.host}", Login(USER, PASSWORD), timeout_s=1) as api,
            pytest.raises(UnavailableError) as caught,
        ):
            api.trigger(DAG, {}, "a-run")

    assert "there was no answer within" in str(caught.value.found)
    assert "--run-id a-run" in caught.value.remedy


def test_a_wrong_password_is_tried_once_and_never_shown(airflow):
    with connected(airflow, "wr0ng-secret") as api, pytest.raises(InputError) as refused:
        api.runs(DAG, 1)

    assert refused.value.what == f"Airflow at {airflow.address} refused user {USER}"
    assert "wr0ng-secret" not in str(refused.value) + repr(Login(USER, "wr0ng-secret"))
    assert airflow.asked == ["POST /auth/token"]


def test_a_given_token_is_used_as_it_is(airflow):
    airflow.tokens.append("mine")
    airflow.dags[DAG] = promoted()

    with Airflow(airflow.address, Login(token="mine")) as api:
        api.runs(DAG, 1)

    assert airflow.count("POST /auth/token") == 0


def test_a_given_token_that_is_not_taken_is_a_wrong_input(airflow):
    with Airflow(airflow.address, Login(token="old")) as api, pytest.raises(InputError) as refused:
        api.runs(DAG, 1)

    assert refused.value.found.startswith("401")
    assert refused.value.remedy.startswith("Check the token")


def test_whitespace_around_a_login_is_left_out(airflow):
    airflow.tokens.append("mine")
    airflow.dags[DAG] = promoted()

    for login in (Login(token=" mine\r\n"), Login(f"{USER}\n", f"{PASSWORD}\n")):
        with Airflow(airflow.address, login) as api:
            assert api.runs(DAG, 1) == []


@pytest.mark.parametrize("secret", ["s3cret\nhalf", "s3cret\x00", "s3cret\x1b[2J", "s3cret\udcff"])
@pytest.mark.parametrize("name", ["SLIPWAY_AIRFLOW_TOKEN", "SLIPWAY_AIRFLOW_USER", "SLIPWAY_AIRFLOW_PASSWORD"])
def test_a_control_character_in_a_login_is_refused_without_showing_it(airflow, name, secret):
    field = name.removeprefix("SLIPWAY_AIRFLOW_").lower()
    with pytest.raises(InputError) as refused:
        Airflow(airflow.address, Login(**{field: secret}))

    assert refused.value.what.startswith(name)
    assert "s3cret" not in str(refused.value)
    assert airflow.asked == []


def test_a_header_that_the_client_refuses_is_not_quoted(airflow, monkeypatch):
    def refuse(*_, **__):
        raise httpx.LocalProtocolError("Illegal header value b'Bearer s3cret'")

    monkeypatch.setattr(httpx.Client, "request", refuse)
    with Airflow(airflow.address, Login(token="mine")) as api, pytest.raises(InputError) as refused:
        api.runs(DAG, 1)

    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("password", ["s3cret", "s3/cret", "s3cret@"])
def test_an_address_with_a_password_is_refused_without_showing_it(slipway, scheme, password):
    code, printed = slipway("--airflow", f"{scheme}jane:{password}@127.0.0.1:9", "release", "demo")

    assert code == 65
    assert "must not hold a user or password" in printed
    assert "cret" not in printed


@pytest.mark.parametrize("address", ["http://here:port", "http://he\nre"])
def test_what_is_no_address_is_a_wrong_input(address):
    with pytest.raises(InputError) as refused:
        Airflow(address, Login(token="mine"))

    assert refused.value.what == "SLIPWAY_AIRFLOW is not an address"


def test_a_paused_dag_is_refused_before_a_run_waits_for_ever(airflow):
    airflow.dags[DAG] = Script([Frame("queued")], paused=True)

    with connected(airflow) as api, pytest.raises(InputError) as refused:
        api.trigger(DAG, {})

    assert refused.value.remedy == f"Unpause it at {airflow.address}."
    assert airflow.runs == {}


def test_a_name_without_a_dag_is_a_wrong_input(airflow):
    with connected(airflow) as api, pytest.raises(NoSuchDagError) as refused:
        api.trigger("release__nobody", {})

    assert refused.value.what == "Airflow has no DAG release__nobody"


GONE = "no longer makes it, or was not read for a while"
UNREADABLE = "slipway.tasks.contracts.errors.InputError: site.yaml: nmae: is not a field"


def test_a_dag_that_cannot_be_read_any_more_is_refused_with_the_import_error(airflow):
    airflow.dags["other"] = Script([Frame("queued")], unreadable="another error")
    airflow.dags[DAG] = Script([Frame("queued")], unreadable=UNREADABLE)

    with connected(airflow) as api, pytest.raises(NoSuchDagError) as refused:
        api.trigger(DAG, {})

    assert (refused.value.what, refused.value.found) == (f"Airflow cannot read DAG {DAG} any more", UNREADABLE)
    assert airflow.runs == {}


def test_a_dag_whose_spec_is_broken_is_refused_with_what_another_file_says_of_it(airflow):
    broken = "BrokenSpecsError: specs/demo.yaml: nmae: no such field\nspecs/z.yaml: token=hf_abcdefghijklmnopqrstuvwxyz0123456789"
    airflow.dags |= {
        "broken_specs": Script([], unreadable=broken),
        "of_another_team": Script([], unreadable="postgresql://u:pw@db"),
        DAG: Script([Frame("queued")], spec_is_gone=True),
    }

    with connected(airflow) as api, pytest.raises(NoSuchDagError) as refused:
        api.trigger(DAG, {})

    assert refused.value.found.startswith(f"{DAG}.py {GONE}; BrokenSpecsError: specs/demo.yaml: nmae: no such field\n")
    assert "hf_abc" not in refused.value.found
    assert "pw" not in refused.value.found


def test_who_may_not_read_import_errors_is_told_the_file(airflow):
    airflow.hides_import_errors = True
    airflow.dags[DAG] = Script([Frame("queued")], unreadable=UNREADABLE)

    with connected(airflow) as api, pytest.raises(NoSuchDagError) as refused:
        api.trigger(DAG, {})

    assert refused.value.found == f"{DAG}.py {GONE}"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_airflow_in_trouble_is_unavailable(airflow, status):
    airflow.failures.append(status)

    with connected(airflow) as api, pytest.raises(UnavailableError) as caught:
        api.runs(DAG, 1)

    assert caught.value.found.startswith(str(status))


def test_an_airflow_that_is_down_is_unavailable_and_the_command_exits_with_75(airflow, slipway, monkeypatch):
    monkeypatch.setenv("SLIPWAY_AIRFLOW", "http://127.0.0.1:9")

    code, printed = slipway("release", "demo")

    assert code == 75
    assert "Airflow at http://127.0.0.1:9 does not answer" in printed


@pytest.fixture
def without_pauses(monkeypatch):
    monkeypatch.setattr("slipway.cli.airflow.api.TRIGGER_PAUSES_S", (0, 0))
    monkeypatch.setattr("slipway.cli.airflow.patience.PAUSE_S", 0)


@pytest.mark.usefixtures("without_pauses")
@pytest.mark.parametrize("run_id", [None, "mine"])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_run_whose_start_was_not_answered_is_followed_and_no_second_one_starts(airflow, slipway, run_id, lost):
    airflow.dags[DAG] = promoted()
    airflow.lost_answers = lost

    code, printed = slipway("release", "demo", *(["--run-id", run_id] if run_id else []))

    assert code == 0
    assert "promoted" in printed
    assert [run.run_id for run in airflow.runs.values()] == [run_id or next(iter(airflow.runs.values())).run_id]


@pytest.mark.usefixtures("without_pauses")
def test_a_start_that_is_never_answered_names_the_run_that_may_have_been_made(airflow):
    airflow.dags[DAG] = promoted()
    airflow.lost_answers = 99

    with connected(airflow) as api, pytest.raises(UnavailableError) as caught:
        api.trigger(DAG, {})

    ((_, made),) = airflow.runs
    assert f"--run-id {made} follows it" in caught.value.remedy


@pytest.mark.parametrize(("repeated_within_s", "requests"), [(float("inf"), 3), (0, 1)])
@pytest.mark.usefixtures("without_pauses")
def test_a_start_is_not_repeated_once_its_time_is_over(airflow, monkeypatch, repeated_within_s, requests):
    monkeypatch.setattr("slipway.cli.airflow.api.REPEATED_WITHIN_S", repeated_within_s)
    airflow.dags[DAG] = promoted()
    airflow.lost_answers = 99

    with connected(airflow) as api, pytest.raises(UnavailableError):
        api.trigger(DAG, {})

    assert airflow.lost_answers == 99 - requests


class FailingAt(list):
    """Statuses for requests whose path ends so."""

    def __init__(self, airflow, end, statuses):
        super().__init__(statuses)
        self.airflow, self.end = airflow, end

    def __bool__(self):
        return len(self) > 0 and self.airflow.asked[-1].endswith(self.end)


@pytest.mark.usefixtures("without_pauses")
def test_a_log_that_is_not_answered_at_the_end_of_a_run_is_asked_for_again(airflow, slipway):
    airflow.dags[DAG] = failed("plan", "AirflowFailException", "plan: slipway/demo-llama has no revision v9")
    airflow.failures = FailingAt(airflow, "/logs/1", [503, 504])

    code, printed = slipway("release", "demo")

    assert code == 65
    assert "has no revision v9" in printed
    assert not list(airflow.failures)


def test_silence_begins_with_the_first_request_that_failed_not_with_the_last_answer():
    moments = iter([0.0, PATIENCE_S - 1, PATIENCE_S])
    silence, error = Silence(clock=lambda: next(moments)), UnavailableError("Airflow does not answer")

    silence.check(error)
    silence.check(error)
    with pytest.raises(UnavailableError):
        silence.check(error)


def test_an_airflow_that_is_restarted_while_a_run_is_followed_is_waited_for(airflow, slipway):
    airflow.dags[DAG] = promoted()
    slipway("release", "demo", "--no-wait", "--run-id", "one")
    # the trigger's two requests are answered, the first look is not
    airflow.runs[DAG, "one"].frame = 0

    airflow.failures = FailingAt(airflow, "taskInstances", [503])
    code, printed = slipway("release", "demo", "--run-id", "one")

    assert code == 0
    assert "promoted" in printed
    assert not list(airflow.failures)


def test_a_result_stored_as_text_is_read_too(airflow):
    import json

    script = promoted()
    script.results = {name: json.dumps(document) for name, document in script.results.items()}
    airflow.dags[DAG] = script

    with connected(airflow) as api:
        run = api.trigger(DAG, {})
        assert api.result(run, "publish").summary == "publish went well"
        assert api.result(run, "approval") is None
