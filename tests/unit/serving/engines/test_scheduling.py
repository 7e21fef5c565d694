import threading
import time

import pytest
from generation.requests.question import Job
from generation.running import delivery
from generation.running.scheduler import Scheduler, StoppedError
from generation.runtime import Controls, Progress, Sampling, TokenLogprob

from tests.fakes.servers.generation_runtime import ByteTokenizer, FakeRuntime, RecordedReply
from tests.support.waiting import PATIENCE_S, until

TOKENIZER = ByteTokenizer()


class Service:
    """A scheduler over a fake engine, and what it reported."""

    def __init__(self, runtime, slots):
        self.runtime, self.failures = runtime, []
        self.failed = threading.Event()
        self.scheduler = Scheduler(runtime, TOKENIZER, slots=slots, on_failure=self._failed)

    def _failed(self, error):
        self.failures.append(error)
        self.failed.set()

    def ask(self, text, *, max_tokens=1000, stream=True, stop_words=()):
        reply = RecordedReply()
        self.scheduler.submit(Job(TOKENIZER.encode(text), Sampling(max_tokens), stream, stop_words), reply)
        return reply


@pytest.fixture
def serve():
    services = []

    def start(runtime=None, slots=4):
        services.append(Service(runtime or FakeRuntime(), slots))
        return services[-1]

    yield start
    for service in services:
        if service.runtime.stepped is not None:
            service.runtime.stepped.release(1000)
        service.scheduler.close(5)


def test_an_answer_that_is_not_streamed_comes_in_one_piece(serve):
    reply = serve(FakeRuntime({"capital?": "It is Reykjavík."})).ask("capital?", stream=False)

    assert reply.text == "It is Reykjavík."
    assert len(reply.pieces) == 1
    assert reply.finish_reason == "stop"


def step_by_step(reply, permits, tokens_of_pieces):
    """Let the engine make a piece's tokens once the client has the one before."""
    for number, tokens in enumerate(tokens_of_pieces, start=1):
        permits.release(tokens)
        reply.wait_for_pieces(number)


def test_a_stream_gives_whole_characters_only(serve):
    permits = threading.Semaphore(0)
    reply = serve(FakeRuntime({"say": "日本 😀!"}, stepped=permits)).ask("say")
    step_by_step(reply, permits, (3, 3, 1, 4, 1))

    assert reply.text == "日本 😀!"
    assert reply.pieces == ["日", "本", " ", "😀", "!"]


class SlowReply(RecordedReply):
    """Its second piece is on its way until the test says so."""

    def __init__(self):
        super().__init__()
        self.arrives = threading.Event()

    def send(self, *sent):
        assert not self.pieces or self.arrives.wait(PATIENCE_S)
        super().send(*sent)


def test_the_engine_does_not_wait_for_a_response_and_the_next_one_has_all_tokens_since(serve):
    service, reply = serve(FakeRuntime({"say": "abcdefgh"})), SlowReply()
    service.scheduler.submit(Job(TOKENIZER.encode("say"), Sampling(1000), True), reply)
    other = service.ask("other", stream=False)
    until(lambda: not service.runtime.left and service.runtime.steps >= 8)
    reply.arrives.set()

    assert (reply.text, other.text) == ("abcdefgh", "other")
    assert len(reply.pieces) <= 3  # the first, the one that was under way, and the rest


def test_an_answer_ends_at_max_tokens(serve):
    reply = serve(FakeRuntime({"say": "abcdef"})).ask("say", max_tokens=3)

    assert (reply.text, reply.finish_reason) == ("abc", "length")


def test_a_character_cut_by_max_tokens_is_shown_as_unfinished_at_the_end(serve):
    reply = serve(FakeRuntime({"say": "ab😀"})).ask("say", max_tokens=4)

    assert (reply.text, reply.finish_reason) == ("ab\ufffd", "length")


def test_a_request_joins_the_batch_that_runs_already(serve):
    permits = threading.Semaphore(0)
    service = serve(FakeRuntime({"long": "x" * 50, "short": "y"}, stepped=permits))
    first = service.ask("long")
    step_by_step(first, permits, (1, 1, 1))
    second = service.ask("short")
    permits.release(2)

    assert second.text == "y"
    assert not first.ended
    permits.release(100)
    assert first.text == "x" * 50


def test_no_more_run_at_once_than_there_are_slots_and_the_others_follow(serve):
    service = serve(slots=2)
    replies = [service.ask(f"question {number}") for number in range(7)]

    assert [reply.text for reply in replies] == [f"question {number}" for number in range(7)]
    assert service.runtime.most_at_once == 2


def test_waiting_requests_run_in_the_order_they_came(serve):
    service = serve(slots=1)
    replies = [service.ask(name) for name in ("a", "b", "c")]
    [reply.text for reply in replies]

    assert service.runtime.prompts == ["a", "b", "c"]


def test_a_client_that_left_frees_its_slot(serve):
    permits = threading.Semaphore(0)
    service = serve(FakeRuntime({"endless": "x" * 100_000}, stepped=permits), slots=1)
    left, waits = service.ask("endless"), service.ask("next")
    step_by_step(left, permits, (1, 1))
    left.gone = True
    until(lambda: permits.release() or service.runtime.cancelled)  # it looks after clients between steps
    permits.release(1000)

    assert waits.text == "next"
    left.wait_for_end()
    assert left.finish_reason == "cancelled"
    assert service.runtime.cancelled == [0]


def test_a_client_that_left_while_waiting_never_reaches_the_engine(serve):
    permits = threading.Semaphore(0)
    service = serve(FakeRuntime({"busy": "x" * 5000}, stepped=permits), slots=1)
    _, left, waits = service.ask("busy"), service.ask("left"), service.ask("waits")
    left.gone = True
    until(lambda: permits.release() or left.ended)  # it looks after clients between steps
    permits.release(10_000)

    assert waits.text == "waits"
    assert left.finish_reason == "cancelled"
    assert service.runtime.prompts == ["busy", "waits"]


def test_tokens_that_come_soon_after_others_share_a_response_whose_end_does_not_wait(serve, monkeypatch):
    for pause in ("PAUSE_S", "CANCEL_CHECK_S"):  # what waits is also sent when clients are checked
        monkeypatch.setattr(delivery, pause, 3600)
    permits = threading.Semaphore(0)
    reply = serve(FakeRuntime({"count": "123456789"}, stepped=permits)).ask("count")
    step_by_step(reply, permits, (1, 1))
    permits.release(3)
    time.sleep(0.1)  # the delivery's thread has them by now
    permits.release(100)

    assert reply.text == "123456789"
    assert reply.pieces == ["1", "2", "3456789"]


@pytest.mark.parametrize(
    ("took_s", "pause_s"),
    [(0.0, 0.01), (0.002, 0.01), (0.006, 0.024), (0.3, 0.04)],
)
def test_responses_that_take_long_leave_more_time_to_the_engine(took_s, pause_s):
    assert delivery.pause_s(took_s) == pytest.approx(pause_s)


def test_an_engine_that_refuses_one_request_serves_the_others(serve):
    service = serve(FakeRuntime(refuses=["too much"]))
    refused, served = service.ask("too much"), service.ask("fine")

    assert served.text == "fine"
    assert (refused.text, refused.failure) == ("", "no room for this one")
    assert not service.failures


def test_a_failing_engine_fails_everyone_who_runs_or_waits(serve):
    permits = threading.Semaphore(0)
    service = serve(FakeRuntime({"runs": "x" * 50}, stepped=permits, fails_at_step=3), slots=1)
    runs, waits = service.ask("runs"), service.ask("waits")
    permits.release(10)

    assert runs.text == "xx"
    assert "no memory is left" in runs.failure
    assert waits.text == ""
    assert "no memory is left" in waits.failure
    assert service.failed.wait(PATIENCE_S)
    assert [str(error) for error in service.failures] == ["no memory is left"]


class BrokenReply(RecordedReply):
    """Its second piece cannot be sent."""

    def send(self, *sent):
        if self.pieces:
            raise OSError("the pipe is gone")
        super().send(*sent)


def test_an_answer_that_cannot_be_given_out_fails_everyone_as_a_failing_engine_does(serve):
    permits, reply = threading.Semaphore(0), BrokenReply()
    service = serve(FakeRuntime({"runs": "x" * 50}, stepped=permits))
    service.scheduler.submit(Job(TOKENIZER.encode("runs"), Sampling(1000), True), reply)
    other = service.ask("runs")
    step_by_step(reply, permits, [1])
    permits.release(1)
    reply.wait_for_end()
    permits.release(10)
    other.wait_for_end()

    assert "could not be given out: the pipe is gone" in reply.failure
    assert "the pipe is gone" in other.failure
    assert service.failed.wait(PATIENCE_S)
    assert [str(error) for error in service.failures] == ["the pipe is gone"]


def test_an_answer_that_ends_after_anothers_could_not_be_given_out_is_complete(serve):
    permits, broken = threading.Semaphore(0), BrokenReply()
    service = serve(FakeRuntime({"runs": "x" * 50}, stepped=permits))
    service.scheduler.submit(Job(TOKENIZER.encode("runs"), Sampling(1000), True), broken)
    other = service.ask("abc", stream=False)
    step_by_step(broken, permits, [1])
    permits.release(1)
    broken.wait_for_end()
    permits.release(1)

    assert (other.text, other.finish_reason) == ("abc", "stop")
    assert service.failed.wait(PATIENCE_S)


def test_an_answer_that_cannot_be_given_out_stops_an_engine_that_has_nothing_else_to_do(serve):
    service, reply = serve(), BrokenReply()
    service.scheduler.submit(Job(TOKENIZER.encode("runs"), Sampling(1000), True), reply)

    assert service.failed.wait(PATIENCE_S)
    assert "could not be given out: the pipe is gone" in reply.failure


class BrokenFromTheStart(RecordedReply):
    """Nothing can be sent."""

    def send(self, *sent):
        raise OSError("the pipe is gone")


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_ends_with_a_first_token_that_cannot_be_given_out_has_an_end(serve, stream):
    permits, broken = threading.Semaphore(0), BrokenFromTheStart()
    service = serve(FakeRuntime(stepped=permits), slots=2)
    service.scheduler.submit(Job(TOKENIZER.encode("runs"), Sampling(1000), True), broken)
    other = service.ask("a", stream=stream)
    permits.release(1)
    broken.wait_for_end()
    other.wait_for_end()

    assert "the pipe is gone" in broken.failure
    assert other.text == "a" or "the pipe is gone" in other.failure
    assert service.failed.wait(PATIENCE_S)


class HastyRuntime(FakeRuntime):
    """Makes a whole answer in one step, and reports each of its tokens by itself, as an engine of its own pace does."""

    def __init__(self, answers, last=None):
        super().__init__(answers)
        self.last = last

    def step(self):
        made = []
        while self.left:
            made += super().step()
        return [*made[:-1], self.last or made[-1]]


def test_tokens_of_one_step_that_follow_a_stop_word_are_not_sent(serve):
    service = serve(HastyRuntime({"say": "one and two"}))
    reply = service.ask("say", stop_words=("and",))

    assert (reply.text, reply.finish_reason, reply.stop_word) == ("one ", "stop", "and")
    assert service.ask("next").text == "next"


def test_tokens_of_the_step_in_which_the_engine_refuses_a_request_come_before_the_failure(serve):
    runtime = HastyRuntime({"say": "abc"}, last=Progress(0, (), failure="no room is left"))
    reply = serve(runtime).ask("say")

    assert (reply.text, reply.failure) == ("ab", "no room is left")


class LookedAfter(RecordedReply):
    """Knows when the scheduler has looked after its client, which it does last."""

    def __init__(self):
        super().__init__()
        self.looked = threading.Event()

    def is_cancelled(self):
        self.looked.set()
        return super().is_cancelled()

    def wait_for_look(self):
        for _ in range(2):  # one may be under way
            self.looked.clear()
            assert self.looked.wait(PATIENCE_S)


class CancelsWhileAnotherLeaves(FakeRuntime):
    def cancel(self, number):
        super().cancel(number)
        self.while_cancelling()


def test_a_client_that_leaves_while_another_is_taken_out_gets_an_end(serve):
    permits, last = threading.Semaphore(0), LookedAfter()
    service = serve(CancelsWhileAnotherLeaves({"endless": "x" * 100_000}, stepped=permits), slots=1)
    first, second = service.ask("endless"), service.ask("second")
    service.scheduler.submit(Job(TOKENIZER.encode("last"), Sampling(1000), True), last)

    def second_leaves():
        second.gone = True
        last.wait_for_look()

    service.runtime.while_cancelling = second_leaves
    step_by_step(first, permits, [1])
    first.gone = True
    last.wait_for_look()
    permits.release(1000)

    assert last.text == "last"
    second.wait_for_end()
    assert (first.finish_reason, second.finish_reason) == ("cancelled", "cancelled")


class SlowToAsk(RecordedReply):
    """Whether its client has gone is not known until the test says so."""

    def __init__(self):
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def is_cancelled(self):
        self.asked.set()
        assert self.answers.wait(PATIENCE_S)
        time.sleep(2 * delivery.LOOK_S)
        return super().is_cancelled()


def test_a_stream_goes_on_while_clients_that_wait_are_looked_after(serve):
    permits, first, second = threading.Semaphore(0), SlowToAsk(), SlowToAsk()
    service = serve(FakeRuntime({"runs": "x" * 50}, stepped=permits), slots=1)
    stream = service.ask("runs")
    assert service.runtime.stepping.wait(PATIENCE_S)  # so that both others begin to wait together
    for reply in (first, second):
        service.scheduler.submit(Job(TOKENIZER.encode("waits"), Sampling(1000), True), reply)
    step_by_step(stream, permits, [1])
    assert first.asked.wait(PATIENCE_S)
    permits.release(2)
    until(lambda: service.runtime.steps >= 3)  # then the second step's token is on its way
    first.answers.set()
    stream.wait_for_pieces(2)
    second.answers.set()  # only now: one thread asks them and sends the pieces
    permits.release(100)

    assert stream.text == "x" * 50


def test_after_a_failure_requests_are_refused_at_once(serve):
    service = serve(FakeRuntime(fails_at_step=1))
    assert service.ask("first").text == ""

    with pytest.raises(StoppedError, match="takes no requests"):
        service.ask("second")


def test_closing_finishes_what_runs_and_what_waits(serve):
    permits = threading.Semaphore(0)
    service = serve(FakeRuntime(stepped=permits), slots=1)
    runs, waits = service.ask("runs"), service.ask("waits")
    assert service.runtime.stepping.wait(PATIENCE_S)
    closing = threading.Thread(target=service.scheduler.close, args=(PATIENCE_S,))
    closing.start()
    permits.release(100)
    closing.join(PATIENCE_S)

    assert (runs.text, waits.text) == ("runs", "waits")
    with pytest.raises(StoppedError):
        service.ask("late")


def test_closing_gives_up_after_its_time_and_tells_the_client(serve):
    permits = threading.Semaphore(0)
    service = serve(FakeRuntime({"endless": "x" * 100_000}, stepped=permits))
    runs = service.ask("endless")
    assert service.runtime.stepping.wait(PATIENCE_S)
    closing = threading.Thread(target=service.scheduler.close, args=(0.1,))
    closing.start()
    until(lambda: permits.release() or runs.ended)  # it stops between steps

    assert "stopped before the answer was complete" in runs.failure
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


def test_an_idle_scheduler_does_not_step(serve):
    service = serve()
    assert service.ask("one").text == "one"
    steps = service.runtime.steps
    time.sleep(0.05)

    assert service.runtime.steps == steps == 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("words", "text", "reason", "tokens"),
    [
        (("and",), "one ", "stop", 7),
        (("three", "two"), "one and ", "stop", 11),
        (("four",), "one and two", "stop", 11),
        ((), "one and two", "stop", 11),
    ],
)
def test_an_answer_ends_before_its_first_stop_word(serve, words, text, reason, tokens, stream):
    service = serve(FakeRuntime({"count": "one and two"}))
    reply = service.ask("count", stream=stream, stop_words=words)

    assert (reply.text, reply.finish_reason) == (text, reason)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (5, tokens)
    assert len(reply.pieces) == 1 or stream


def test_a_stop_word_frees_the_slot(serve):
    permits = threading.Semaphore(0)
    service = serve(FakeRuntime({"count": "one and two and three"}, stepped=permits), slots=1)
    first, second = service.ask("count", stop_words=("one",)), service.ask("next")
    permits.release(7)

    assert (first.text, first.finish_reason) == ("", "stop")
    assert second.text == "next"
    assert service.runtime.cancelled == [0]


def test_a_stop_word_that_the_last_token_completes_ends_the_answer_once(serve):
    service = serve(FakeRuntime({"count": "one"}))
    reply = service.ask("count", stop_words=("ne",))

    assert (reply.text, reply.finish_reason) == ("o", "stop")
    assert service.runtime.cancelled == []


def test_an_answer_cut_by_max_tokens_counts_them(serve):
    reply = serve(FakeRuntime({"say": "abcdef"})).ask("say", max_tokens=3)

    assert reply.text == "abc"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 3)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("together", [1, 5, 11, 30])
def test_stop_words_before_the_fewest_tokens_do_not_count_however_many_steps_are_given_out_together(stream, together):
    text, reply = "one stop, two stop, three", RecordedReply()
    sampling = Sampling(100, controls=Controls(min_tokens=10))
    request = delivery.Request(Job((), sampling, stream, ("stop",)), reply, TOKENIZER.split((), thinks=False))
    given = delivery.Delivery(TOKENIZER, list, lambda: None)
    steps = [Progress(1, (byte,)) for byte in text.encode()]

    for first in range(0, len(steps), together):
        if given.give({request: steps[first : first + together]}):
            break
    given.close(5)

    assert (reply.text, reply.finish_reason) == ("one stop, two ", "stop")


class CountsOfPrompt(RecordedReply):
    """How many of the prompt's tokens each response had."""

    def __init__(self):
        super().__init__()
        self.counts = []

    def send(self, *sent, prompt_logprobs=(), **named):
        of_prompt = prompt_logprobs or (sent[6] if len(sent) > 6 else ())
        self.counts.append(len(of_prompt))
        super().send(*sent[:6], prompt_logprobs=of_prompt, **named)


@pytest.mark.parametrize(("stream", "counts"), [(True, [128, 128, 45, 0]), (False, [301])])
@pytest.mark.parametrize("text", ["a", "ab"])
def test_a_stream_has_the_log_probabilities_of_a_long_prompt_in_parts(stream, counts, text):
    reply, found = CountsOfPrompt(), [TokenLogprob(each, -1.0) for each in range(301)]
    request = delivery.Request(Job((), Sampling(9), stream), reply, TOKENIZER.split((), thinks=False))
    given = delivery.Delivery(TOKENIZER, list, lambda: None)
    for at, byte in enumerate(text.encode()):
        given.give({request: [Progress(1, (byte,), "stop" * (at == len(text) - 1), prompt_logprobs=found * (not at))]})
    given.close(5)

    assert (reply.text, reply.prompt_logprobs) == (text, found)
    assert reply.counts == counts[: -1 if stream and text == "a" else None]


def test_no_text_is_lost_where_some_tokens_alone_have_log_probabilities():
    """As the first one has behind a prompt that was scored."""
    reply, first = RecordedReply(), TokenLogprob(ord("a"), -1.0)
    request = delivery.Request(Job((), Sampling(9), stream=True), reply, TOKENIZER.split((), thinks=False))
    given = delivery.Delivery(TOKENIZER, list, lambda: None)
    given.give({request: [Progress(1, b"a", logprobs=[first]), Progress(1, b"bc", "stop")]})
    given.close(5)

    assert (reply.text, reply.logprobs) == ("abc", [[first]])
