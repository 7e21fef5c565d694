"""Prompts as texts, for an engine that tokenizes them itself. Computes only.

It adds special tokens to every text, except for the models that `as_written` names.

vLLM is one (vllm/inputs/preprocess.py, InputPreprocessor._tokenize_prompt), and Triton's backend for it takes no token
ids (vllm_backend 8de0c14, src/utils/request.py).
"""

from generation.chat_template import PROBE
from generation.hf_tokenizer import HuggingFaceTokenizer
from generation.question import Question
from generation.settings import SettingsError


class TextPrompts:
    """Makes texts of which the engine's tokenizer makes the tokens that the chat template means.

    Most templates write the token that begins a text, and the tokenizer adds it again. It is left out of the text here,
    so that the model reads it once. A model whose template does not write it reads it once too: it cannot be prevented.
    vLLM adds nothing to the prompts of some classes, such as Gemma 4 (vllm/model_executor/models/gemma4_mm.py,
    get_default_tok_params): their texts keep it.
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer, *, as_written: bool = False) -> None:
        """Prepare for one checkpoint.

        Args:
            tokenizer: that of the engine.
            as_written: the engine adds no special tokens to a text.

        Raises:
            SettingsError: the engine would read a templated prompt as other tokens than the template means.
        """
        self._tokenizer, self._as_written = tokenizer, as_written
        self._added = "" if as_written else tokenizer.added_text()
        if as_written:
            return
        templated = tokenizer.wrap(PROBE)
        meant, read = tokenizer.encode_word(templated), tokenizer.encode_prompt(self._without_added(templated))
        if read not in (meant, [*tokenizer.encode_word(self._added), *meant]):
            raise SettingsError(
                f"the tokenizer reads the chat template's prompt as {read[:8]}..., which means {meant[:8]}...: it "
                f"depends on what the prompt begins with ({self._added!r}). Set chat_template to none."
            )

    def prompt(self, question: Question) -> tuple[str, list[int]]:
        """The text for the engine, and the tokens that its tokenizer makes of it.

        Raises:
            RefusedError: the chat template does not take the question or the messages, or none is applied.
        """
        arguments = question.template_arguments
        if question.messages:
            templated = self._tokenizer.wrap_messages(question.messages, arguments, question.tools)
        else:
            templated = self._tokenizer.wrap(question.text, arguments)
        text = self._without_added(templated)
        return text, self._tokenizer.encode_word(text) if self._as_written else self._tokenizer.encode_prompt(text)

    def _without_added(self, templated: str) -> str:
        return templated.removeprefix(self._added)
