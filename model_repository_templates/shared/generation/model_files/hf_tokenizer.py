"""The tokenizer that a Hugging Face checkpoint brings, by the tokenizers library: a Tokenizer for every GPU engine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from generation.model_files.channels import Channels, Thinking, harmony_of, thinking_of
from generation.model_files.chat_template import chat_template_of, read_json, special_tokens
from generation.model_files.token_bytes import longest_token
from generation.requests.conversation import NO_MESSAGES
from generation.requests.question import RefusedError
from generation.requests.template_arguments import NO_TEMPLATE
from generation.runtime import Split
from generation.settings import SettingsError


class HuggingFaceTokenizer:
    """A Tokenizer over tokenizer.json.

    Attributes:
        end_ids: ids that end an answer, the first one being the usual.
        pad_id: what fills up a batch; the usual end where the checkpoint names none.
        default_max_tokens: the checkpoint's own bound of an answer, or None.
        longest_token: bytes of the longest text that one token may stand for; None where that may be any text.
        channels: what tells thoughts and answers apart.
        vocabulary_size: every id of a token is below it.
    """

    def __init__(self, folder: Path, *, chat: bool, arguments: Mapping[str, Any] | None = None) -> None:
        """`arguments` are those of the chat template for every question."""
        from tokenizers import Tokenizer

        file = folder / "tokenizer.json"
        if not file.exists():
            raise SettingsError(f"{file} is not there; expected the tokenizer of the checkpoint.")
        self._tokenizer = Tokenizer.from_file(str(file))
        self._template = chat_template_of(folder, arguments) if chat else None
        self.longest_token = longest_token(read_json(file))
        self.vocabulary_size = 1 + max(self._tokenizer.get_vocab().values())  # ids may have gaps
        id_of, marks = self._tokenizer.token_to_id, self._template.thought_marks if self._template else None
        self.channels = Channels(harmony_of(id_of, self.encode_word), thinking_of(marks, id_of, self.decode))
        generation = read_json(folder / "generation_config.json")
        tokens = special_tokens(read_json(folder / "tokenizer_config.json"))
        self.end_ids = self._ends(folder, generation.get("eos_token_id"), tokens.get("eos_token"))
        pad = self._tokenizer.token_to_id(tokens["pad_token"]) if "pad_token" in tokens else None
        self.pad_id: int = self.end_ids[0] if pad is None else pad
        self.default_max_tokens: int | None = generation.get("max_new_tokens")

    def encode(self, question: str, template_arguments: Mapping[str, Any] | None = None) -> list[int]:
        """Ids as Hugging Face's tokenizer gives them: a chat template writes BOS itself, else the tokenizer adds it."""
        text = self.wrap(question, template_arguments)
        return list(self._tokenizer.encode(text, add_special_tokens=self._template is None).ids)

    def wrap(self, question: str, template_arguments: Mapping[str, Any] | None = None) -> str:
        """The question in the checkpoint's chat template, or as it is where none is applied."""
        if self._template is None and template_arguments:
            raise RefusedError(NO_TEMPLATE)
        return self._template.wrap(question, template_arguments) if self._template else question

    @property
    def tool_call_format(self) -> str:
        """How the checkpoint's chat template writes calls of tools; empty if it is not known."""
        return self._template.tool_call_format if self._template else ""

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_arguments: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Ids of a conversation by the checkpoint's chat template."""
        return self.encode_word(self.wrap_messages(messages, template_arguments, tools))

    def wrap_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_arguments: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """A conversation in the checkpoint's chat template."""
        if self._template is None:
            raise RefusedError(NO_MESSAGES)
        return self._template.render(messages, template_arguments, tools)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a text as it is."""
        return list(self._tokenizer.encode(text, add_special_tokens=True).ids)

    def encode_word(self, word: str) -> list[int]:
        """Ids of a text that stands within another one."""
        return list(self._tokenizer.encode(word, add_special_tokens=False).ids)

    def encode_bad_word(self, word: str) -> list[list[int]]:
        """Ids of a text at the beginning of a word and within one, as vLLM forbids both (SamplingParams.bad_words)."""
        ways = [self.encode_word(word.lstrip()), self.encode_word(f" {word.lstrip()}")]
        return ways if ways[0] != ways[1] else ways[:1]

    @property
    def thinking(self) -> Thinking | None:
        """As Tokenizer."""
        return self.channels.thinking

    def split(self, prompt: Sequence[int], *, thinks: bool) -> Split:
        """Tell thoughts apart by the channels in which gpt-oss answers, or by the marks that the chat template has."""
        return self.channels.split(prompt, thinks=thinks)

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Texts without special tokens."""
        return list(self._tokenizer.decode_batch([list(sequence) for sequence in sequences]))

    def _ends(self, folder: Path, ids: int | list[int] | None, token: str | None) -> tuple[int, ...]:
        """What generation_config.json names, and the tokenizer's own end, as vLLM has it.

        Either may be the only one that a chat model ends its turns with (vllm/sampling_params.py at v0.24.0,
        update_from_generation_config).
        """
        named = [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
        own = self._tokenizer.token_to_id(token) if token else None
        found = tuple(dict.fromkeys([*named, *([] if own is None else [own])]))
        if not found:
            raise SettingsError(
                f"{folder} does not say what ends an answer; expected eos_token_id in generation_config.json or "
                "eos_token in tokenizer_config.json."
            )
        return found
