"""An engine whose tokens are bytes: the Runtime and Tokenizer of the serving code, without a model."""

import threading

from generation.runtime import Parts, Progress

from tests.support.waiting import PATIENCE_S


class ByteTokenizer:
    tool_call_format, longest_token, vocabulary_size, thinking = "", 1, 256, None

    """Bytes as ids, as byte-level vocabularies do in the worst case: a character may take four tokens."""

    def encode(self, question, template_arguments=None):
        return tuple(question.encode())

    def split(self, prompt, *, thinks):
        return lambda tokens: Parts(list(tokens), [])

    def decode(self, sequences):
        return [bytes(sequence).decode("utf-8", errors="replace") for sequence in sequences]


class FakeRuntime:
    """Answers a prompt with the text of `answers`, else with the prompt itself; a byte of each at every step.

    With `stepped`, a semaphore, every step that has someone to serve waits for a permit, so that a test decides what
    happens between two steps.
    """

    def __init__(self, answers=None, *, stepped=None, fails_at_step=None, refuses=()):
        self.answers = {k.encode(): v.encode() for k, v in (answers or {}).items()}
        self.stepped, self.fails_at_step, self.refuses = stepped, fails_at_step, {text.encode() for text in refuses}
        self.left, self.steps, self.cancelled, self.most_at_once, self.prompts = {}, 0, [], 0, []
        self.freeing = False
        self.stepping = threading.Event()

    def add(self, number, prompt, sampling):
        self.prompts.append(bytes(prompt).decode())
        self.left[number] = (bytes(prompt), list(self.answers.get(bytes(prompt), bytes(prompt))), sampling.max_tokens)

    def step(self):
        self.freeing = False
        if self.left and self.stepped is not None:
            self.stepping.set()
            assert self.stepped.acquire(timeout=PATIENCE_S), "a test forgot to permit a step"
        self.steps += bool(self.left)
        if self.fails_at_step is not None and self.steps >= self.fails_at_step and self.left:
            raise RuntimeError("no memory is left")
        self.most_at_once = max(self.most_at_once, len(self.left))
        return [self._next(number) for number in list(self.left)]

    def cancel(self, number):
        del self.left[number]
        self.cancelled.append(number)
        self.freeing = True

    def has_work(self):
        return bool(self.left) or self.freeing

    def _next(self, number):
        prompt, tokens, room = self.left[number]
        if prompt in self.refuses:
            del self.left[number]
            return Progress(number, (), failure="no room for this one")
        token, room = tokens.pop(0), room - 1
        self.left[number] = (prompt, tokens, room)
        reason = "" if tokens and room else "length" if tokens else "stop"
        if reason:
            del self.left[number]
        return Progress(number, (token,), reason)


class RecordedReply:
    """What one client received. `gone` is set by a test when the client leaves."""

    def __init__(self):
        self.pieces, self.finish_reason, self.failure, self.stop_word = [], "", "", ""
        self.usage, self.logprobs, self.thoughts, self.prompt_logprobs = None, [], [], []
        self.gone = False
        self._ended, self._changed = threading.Event(), threading.Condition()

    def send(self, text, finish_reason, usage=None, logprobs=(), thought="", stop_word="", prompt_logprobs=()):
        assert not self._ended.is_set(), "something was sent after the end"
        with self._changed:
            self.pieces.append(text)
            self.thoughts.append(thought)
            self.logprobs.append(list(logprobs))
            self.prompt_logprobs += prompt_logprobs
            self.finish_reason, self.usage, self.stop_word = finish_reason, usage, stop_word
            self._changed.notify_all()
        if finish_reason:
            self._ended.set()

    def fail(self, message):
        assert not self._ended.is_set(), "a failure was sent after the end"
        self.failure = message
        self._ended.set()

    def is_cancelled(self):
        return self.gone

    @property
    def text(self):
        assert self._ended.wait(PATIENCE_S), "no end came"
        return "".join(self.pieces)

    def wait_for_end(self):
        assert self._ended.wait(PATIENCE_S), "no end came"

    @property
    def ended(self):
        return self._ended.is_set()

    def wait_for_pieces(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.pieces) >= count, PATIENCE_S), f"no {count} pieces came"
