"""How many tokens each client may use. Pure but for the clock."""

import math
from collections.abc import Callable, Mapping
from http import HTTPStatus

from slipway.tasks.contracts import api_keys
from slipway.tasks.contracts.site.authentication import EVERY_OTHER
from slipway.tasks.serving.openai_api.http.errors import ApiError

MINUTE_S = 60.0


class TokenQuotas:
    """A bucket of tokens for each client, which fills steadily and holds those of a minute.

    An answer's tokens are known when it has ended, so a client may owe some; until they are paid it is refused.
    """

    def __init__(self, per_minute: Mapping[str, int], clock: Callable[[], float]) -> None:
        """`per_minute` by name of clients, `*` for all others; `clock` gives seconds from any fixed moment."""
        self._per_minute, self._clock = per_minute, clock
        self._left: dict[str, tuple[float, float]] = {}
        """Tokens that were left, and when."""

    def check(self, client: str) -> None:
        """Let a client ask that has tokens left.

        Raises:
            ApiError: it has none; status 429, and when to ask again.
        """
        quota = self._quota(client)
        if quota is None or (left := self._tokens(client, quota)) > 0:
            return
        wait_s = max(1, math.ceil((1 - left) * MINUTE_S / quota))
        raise ApiError(
            f"the key {client} has used its {quota} tokens a minute: ask again in {wait_s} s.",
            code="rate_limit_exceeded",
            status=HTTPStatus.TOO_MANY_REQUESTS,
            retry_after_s=wait_s,
        )

    def spend(self, client: str, tokens: int) -> None:
        """Take what an answer used."""
        quota = self._quota(client)
        if quota is None:
            return
        if client not in self._left and len(self._left) >= api_keys.MOST_KEYS:
            self._forget_full()
        self._left[client] = (self._tokens(client, quota) - tokens, self._clock())

    def label_of(self, client: str) -> str:
        """What metrics call a client."""
        return api_keys.label_of(client, self._per_minute)

    def _forget_full(self) -> None:
        """Of tokens' subjects an issuer may have any number."""
        for client in list(self._left):
            quota = self._quota(client)
            if quota is None or self._tokens(client, quota) >= quota:
                del self._left[client]

    def _quota(self, client: str) -> int | None:
        return self._per_minute.get(client, self._per_minute.get(EVERY_OTHER)) if client else None

    def _tokens(self, client: str, quota: int) -> float:
        left, since = self._left.get(client, (float(quota), 0.0))
        return min(float(quota), left + (self._clock() - since) * quota / MINUTE_S)
