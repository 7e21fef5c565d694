"""The models that clients may name, as Triton has them."""

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.serving.openai_api.generation.inputs import ServedModel, served_model
from slipway.tasks.serving.openai_api.generation.lora_models import ModelName, loras_of
from slipway.tasks.serving.openai_api.http.errors import ApiError

ADAPTERS_FILE = "adapters.json"
"""What slipway/tasks/serving/pod/adapter_files.py writes of the adapters that come and go while the model is live."""


class Models(Protocol):
    """Triton, as far as the routes need it; tasks.adapters.triton.triton_generate.GenerateStreams."""

    async def config(self, model: str) -> Mapping[str, Any]:
        """The model's configuration.

        Raises:
            UnavailableError: Triton does not answer, or the model is not loaded.
        """

    async def is_ready(self, model: str) -> bool:
        """Whether the model takes requests; False where Triton does not answer."""

    def responses(
        self, model: str, inputs: Mapping[str, Any], trace_parent: str = ""
    ) -> AsyncGenerator[list[Mapping[str, Any]], None]:
        """Yield the model's responses, as many together as arrive together.

        Raises:
            InputError: the model refused the request.
            UnavailableError: Triton does not answer, or the answer broke off.
        """


class Catalogue:
    """The models of one release, or of one combination of a group's releases, and their adapters."""

    def __init__(self, models: Models, names: Sequence[str], adapters: Path | None = None) -> None:
        """`adapters`: the folder of those that come and go while the model is live, if there are any."""
        self._models, self.names, self._folder = models, tuple(names), adapters
        self._known: dict[str, tuple[ServedModel, tuple[str, ...]]] = {}
        self._created = int(time.time())

    async def served(self, model: str) -> ServedModel:
        """The model that a client names, perhaps by one of its adapters.

        Raises:
            ApiError: there is no such model.
            UnavailableError: Triton has not loaded it.
        """
        name = ModelName.read(model)
        await self.check(name)
        return (await self._read(name.base))[0]

    async def documents(self) -> list[dict[str, Any]]:
        """The models as /v1/models lists them, and their adapters as further ones."""
        documents = []
        for name in self.names:
            documents.append(await self.document(ModelName(name)))
            documents += [await self.document(ModelName(name, adapter)) for adapter in await self._adapters(name)]
        return documents

    async def document(self, name: ModelName) -> dict[str, Any]:
        """A model as /v1/models lists it. `max_model_len` is vLLM's; it is null as long as Triton has not loaded it."""
        try:
            longest = (await self._read(name.base))[0].max_sequence_tokens
        except UnavailableError:
            longest = None
        document = {"id": str(name), "object": "model", "created": self._created, "owned_by": "slipway"}
        document["max_model_len"] = longest
        return document if name.adapter is None else {**document, "root": name.adapter, "parent": name.base}

    async def check(self, name: ModelName) -> None:
        """Refuse a name that no model and no adapter has.

        Raises:
            ApiError: names those that there are.
        """
        if name.base in self.names and name.adapter is None:
            return
        adapters = (await self._read(name.base))[1] if name.base in self.names else ()
        answered, listed = self._live() if name.base in self.names else ((), ())
        if name.adapter not in (*adapters, *answered):
            there = [*self.names, *(str(ModelName(name.base, adapter)) for adapter in sorted((*adapters, *listed)))]
            raise ApiError(
                f"the model {str(name)[:64]!r} does not exist; there is {', '.join(there)}.",
                param="model",
                code="model_not_found",
                status=HTTPStatus.NOT_FOUND,
            )

    async def _adapters(self, name: str) -> tuple[str, ...]:
        """Names of the model's adapters that are listed; none as long as Triton has not loaded it."""
        try:
            return tuple(sorted((*(await self._read(name))[1], *self._live()[1])))
        except UnavailableError:
            return ()

    def _live(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The adapters that come and go: those that the model answers to, and those of them that are listed."""
        if self._folder is None:
            return (), ()
        try:
            document = json.loads((self._folder / ADAPTERS_FILE).read_bytes())
        except FileNotFoundError:
            return (), ()
        return tuple(document["names"]), tuple(document["listed"])

    async def _read(self, name: str) -> tuple[ServedModel, tuple[str, ...]]:
        """The model and the adapters of its release, read once: the repository of a pod never changes."""
        if name not in self._known:
            config = await self._models.config(name)
            self._known[name] = await self._with_limits(served_model(config)), loras_of(config)
        return self._known[name]

    async def _with_limits(self, model: ServedModel) -> ServedModel:
        """The model with the limits of the one that makes its prompts, where it has none of its own."""
        if model.prompt_model is None or model.max_sequence_tokens is not None:
            return model
        limits = served_model(await self._models.config(model.prompt_model))
        return replace(model, max_input_tokens=limits.max_input_tokens, max_sequence_tokens=limits.max_sequence_tokens)
