"""The load of a drill whose requests are counted by the clock instead of being sent."""

from slipway.tasks.adapters.load.steady_load import BackgroundLoad
from slipway.tasks.contracts.measured.measurement import RequestRow

LATENCY_S = 0.25


class CountedLoad(BackgroundLoad):
    """`rate` requests per second of the clock; `fails` says what is wrong with one that is due after these seconds."""

    def __init__(self, clock, rate, fails=lambda _: ""):
        self.clock, self.rate, self.fails = clock, rate, fails
        self.began = self.address = None
        self.abandoned = False

    def start(self, address):
        self.began, self.address = self.clock.monotonic(), address

    def stop(self):
        if self.began is None:
            return []
        count = int((self.clock.monotonic() - self.began) * self.rate)
        return [self.row(number) for number in range(count)]

    def row(self, number):
        due_s = self.began + number / self.rate
        error = self.fails(due_s - self.began)
        times = {"start_s": due_s, "due_s": due_s, "first_token_s": due_s, "last_token_s": due_s + LATENCY_S}
        fixed = {"target": "live", "request_rate": self.rate, "batch": 0, "prompt": "?"}
        return RequestRow.model_validate({**fixed, **times, "ok": not error, "error": error})

    def abandon(self):
        self.abandoned = True
