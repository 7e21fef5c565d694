"""Service account tokens: signed, with an expiry, and void once their account or pod is gone.

The claims are those of Kubernetes: https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from ..objects.resources import PODS, SERVICE_ACCOUNTS, Object
from ..objects.status import bad_request, conflict, invalid_kind
from ..objects.store import Store, key_of
from .access import write_private
from .identity import User, service_account

ALGORITHM = "ES256"
ISSUER = "https://kubernetes.default.svc.cluster.local"
CLAIMS = jwt.JWTClaimsRegistry(
    iss={"essential": True, "value": ISSUER}, aud={"essential": True, "value": ISSUER}, exp={"essential": True}
)
HOUR_S = 3600
SHORTEST_S, LONGEST_S = 600, 1 << 32
POD_TOKEN_S = 3607  # what the kubelet requests; the API server extends exactly this lifetime to a year
EXTENDED_S = 365 * 24 * HOUR_S


class TokenIssuer:
    """Issues and reads the tokens of one state folder; its key outlives the server."""

    def __init__(self, store: Store, state: Path) -> None:
        """Read the folder's key, or create one if the folder is new."""
        self._store = store
        file = state / "service-accounts.key"
        if not file.exists():
            write_private(file, ECKey.generate_key("P-256").as_pem(private=True).decode())
        self._key = ECKey.import_key(file.read_text())

    def for_pod(self, pod: Object) -> str:
        """The token to mount in a pod.

        Raises:
            ApiError: 404, its service account is gone.
        """
        namespace, _ = key_of(pod)
        account = self._store.need(SERVICE_ACCOUNTS, namespace, pod["spec"]["serviceAccountName"])
        return self._issue(account, EXTENDED_S, [ISSUER], pod)

    def answer(self, account: Object, body: Object) -> Object:
        """Complete a TokenRequest.

        Raises:
            ApiError: 400, 404 or 409 for the object that the token is to be bound to; 422 for its lifetime.
        """
        spec: dict[str, Any] = body.get("spec") or {}
        lifetime_s, audiences = spec.get("expirationSeconds") or HOUR_S, spec.get("audiences") or [ISSUER]
        _check_lifetime(lifetime_s)
        pod = self._bound_pod(account, spec.get("boundObjectRef"))
        token = self._issue(account, lifetime_s, audiences, pod)
        ends = datetime.fromtimestamp(int(time.time()) + lifetime_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace, name = key_of(account)
        return {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec | {"audiences": audiences, "expirationSeconds": lifetime_s},
            "status": {"token": token, "expirationTimestamp": ends},
        }

    def user(self, token: str) -> User | None:
        """The service account that `token` identifies; None if the token is not valid (any more)."""
        try:
            claims = jwt.decode(token, self._key, algorithms=[ALGORITHM]).claims
            CLAIMS.validate(claims)
        except (JoseError, ValueError):
            return None
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        bound = [(SERVICE_ACCOUNTS, account), *([(PODS, about["pod"])] if "pod" in about else [])]
        for resource, reference in bound:
            stored = self._store.get(resource, namespace, reference["name"])
            if stored is None or stored["metadata"]["uid"] != reference["uid"]:
                return None
        return service_account(namespace, account["name"], account["uid"])

    def _issue(self, account: Object, lifetime_s: int, audiences: Sequence[str], pod: Object | None) -> str:
        namespace, name = key_of(account)
        about: dict[str, Any] = {"namespace": namespace, "serviceaccount": _reference(account)}
        begins = int(time.time())
        if pod is not None:
            about |= {"pod": _reference(pod), "warnafter": begins + POD_TOKEN_S}
        claims = {
            "iss": ISSUER,
            "sub": service_account(namespace, name, "").name,
            "aud": list(audiences),
            "iat": begins,
            "nbf": begins,
            "exp": begins + lifetime_s,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": about,
        }
        return jwt.encode({"alg": ALGORITHM}, claims, self._key)

    def _bound_pod(self, account: Object, reference: Mapping[str, Any] | None) -> Object | None:
        if reference is None:
            return None
        if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod"):
            raise bad_request(f"cannot bind token to object of type {reference.get('kind')}: expected Pod")
        namespace, name = key_of(account)
        pod = self._store.need(PODS, namespace, reference.get("name", ""))
        if pod["spec"]["serviceAccountName"] != name:
            raise bad_request(
                f'cannot bind token for serviceaccount "{name}" to pod running with different serviceaccount name.'
            )
        if reference.get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise conflict(PODS, pod["metadata"]["name"], why)
        return pod


def _check_lifetime(lifetime_s: Any) -> None:
    problem = ""
    if not isinstance(lifetime_s, int) or lifetime_s < SHORTEST_S:
        problem = "may not specify a duration less than 10 minutes"
    elif lifetime_s > LONGEST_S:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        text = f"Invalid value: {lifetime_s}: {problem}"
        raise invalid_kind("TokenRequest.authentication.k8s.io", "", [("spec.expirationSeconds", text)])


def _reference(item: Object) -> dict[str, str]:
    return {"name": item["metadata"]["name"], "uid": item["metadata"]["uid"]}
