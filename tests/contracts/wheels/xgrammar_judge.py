"""One version of xgrammar as a judge of grammars, in a process of its own, since a process can import only one.

Processes are forked from a server that has imported torch and transformers, which takes most of the time.
"""

import importlib.metadata
import multiprocessing
import random
import sys
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("0.1.25", "0.1.33", "0.2.1", "0.2.8")
"""Of TensorRT-LLM 1.2, of vLLM 0.19, and the oldest and newest that vLLM 0.24 to 0.32 take."""
TOKENS = 160
"""Tokens of a walk at most."""
ENDING = (b'"', b"}", b"]", b",", b":")
"""Tokens that are taken in every second step, where they are allowed: else few walks would end."""
WORD_BITS = 32


@dataclass(frozen=True)
class Walk:
    """A text drawn at random from what a grammar allows.

    Attributes:
        text: what was drawn.
        end: how it ended: "stop", "length" after TOKENS tokens, or "dead end" where no token was allowed.
    """

    text: bytes
    end: str


class Judge:
    """A version of xgrammar, with the vocabulary of a tokenizer. Used as a context, whose end ends the process."""

    def __init__(self, version, site_packages, tokenizer):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "transformers"])
        self.version = version
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, site_packages, tokenizer), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pipe.close()
        self._process.join()

    def judge(self, grammar, texts=(), seeds=()):
        """Whether each text is in the grammar as a whole, and one walk for each seed.

        Raises:
            ValueError: the grammar does not compile; the text is xgrammar's.
        """
        self._pipe.send((grammar, list(texts), list(seeds)))
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(pipe, site_packages: Path, tokenizer: Path):
    sys.path.insert(0, str(site_packages))
    import torch
    import transformers

    torch.set_num_threads(1)
    xgrammar = _Xgrammar(transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), eos_token="</s>"))
    while True:
        try:
            grammar, texts, seeds = pipe.recv()
        except EOFError:
            return
        try:
            compiled = xgrammar.compiled(grammar)
        except Exception as error:  # noqa: BLE001 - each version has classes of its own, which others cannot unpickle
            pipe.send(ValueError(f"xgrammar {importlib.metadata.version('xgrammar')}: {error}"))
            continue
        pipe.send(([xgrammar.accepts(compiled, text) for text in texts], [xgrammar.walk(compiled, s) for s in seeds]))


class _Xgrammar:
    def __init__(self, tokenizer):
        import xgrammar

        self._module = xgrammar
        self._tokens = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
        self._texts, self._stop = self._tokens.decoded_vocab, self._tokens.stop_token_ids[0]
        self._bytes = {text: number for number, text in enumerate(self._texts) if len(text) == 1}
        self._compiler = xgrammar.GrammarCompiler(self._tokens, max_threads=1, cache_enabled=False)
        self._mask = xgrammar.allocate_token_bitmask(1, self._tokens.vocab_size)

    def compiled(self, grammar):
        """The grammar, as matchers take it."""
        return self._compiler.compile_grammar(grammar)

    def accepts(self, compiled, text):
        """Whether the text, byte by byte, and then its end are allowed."""
        matcher = self._module.GrammarMatcher(compiled)
        return all(matcher.accept_token(self._bytes[bytes([byte])]) for byte in text) and matcher.accept_token(
            self._stop
        )

    def walk(self, compiled, seed):
        """Draw tokens, each as likely as any other that the mask allows."""
        chance, matcher = random.Random(seed), self._module.GrammarMatcher(compiled)  # noqa: S311
        drawn = b""
        for _ in range(TOKENS):
            allowed = self._allowed(matcher)
            if not allowed:
                return Walk(drawn, "dead end")
            ending = [token for token in allowed if token == self._stop or self._texts[token] in ENDING]
            token = chance.choice(ending if ending and chance.random() < 1 / 2 else allowed)
            if not matcher.accept_token(token):
                return Walk(drawn, f"refused {self._texts[token]!r}, which the mask allows")
            if token == self._stop:
                return Walk(drawn, "stop")
            drawn += self._texts[token]
        return Walk(drawn, "length")

    def _allowed(self, matcher):
        matcher.fill_next_token_bitmask(self._mask)
        return [
            number * WORD_BITS + bit
            for number, word in enumerate(self._mask[0].tolist())
            if word
            for bit in range(WORD_BITS)
            if word >> bit & 1 and number * WORD_BITS + bit < len(self._texts)
        ]
