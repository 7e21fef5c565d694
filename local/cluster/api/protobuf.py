"""Decodes request bodies in Kubernetes' protobuf encoding, which kubectl always uses for the few kinds below.

Wire format: https://protobuf.dev/programming-guides/encoding/. Envelope:
https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding. Field numbers: generated.proto of
k8s.io/api v0.34.0, authorization/v1 and authentication/v1. Answers are JSON, which the same clients accept.
"""

from collections.abc import Iterator
from typing import Any

from ..objects.status import ApiError, bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
VARINT, FIXED_64, LENGTH, FIXED_32 = 0, 1, 2, 5
RAW, TYPE, API_VERSION, KIND = 2, 1, 1, 2

TEXT, NUMBER, TEXTS = "text", "number", "texts"
Schema = dict[int, tuple[str, Any]]
_RESOURCE = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_REFERENCE: Schema = {1: ("kind", TEXT), 2: ("apiVersion", TEXT), 3: ("name", TEXT), 4: ("uid", TEXT)}
_SPECS: dict[str, Schema] = {
    "SelfSubjectAccessReview": {
        1: ("resourceAttributes", {number: (name, TEXT) for number, name in enumerate(_RESOURCE, 1)}),
        2: ("nonResourceAttributes", {1: ("path", TEXT), 2: ("verb", TEXT)}),
    },
    "SelfSubjectRulesReview": {1: ("namespace", TEXT)},
    "SelfSubjectReview": {},
    "TokenRequest": {1: ("audiences", TEXTS), 3: ("boundObjectRef", _REFERENCE), 4: ("expirationSeconds", NUMBER)},
}


def decode(body: bytes) -> dict[str, Any]:
    """The object that `body` holds.

    Raises:
        ApiError: 400, it cannot be read; 415, this server accepts its kind only as JSON or YAML.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request cannot be read: it is not Kubernetes protobuf")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        about = {number: bytes(value).decode() for number, value in _fields(envelope[TYPE])}
        if about[KIND] not in _SPECS:
            text = f"the body of a {about[KIND]} is protobuf; this server accepts application/json"
            raise ApiError(415, "UnsupportedMediaType", text)
        schema: Schema = {2: ("spec", _SPECS[about[KIND]])}
        return {"apiVersion": about[API_VERSION], "kind": about[KIND], **_object(envelope.get(RAW, b""), schema)}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error


def _object(data: bytes, schema: Schema) -> dict[str, Any]:
    item: dict[str, Any] = {}
    for number, value in _fields(data):
        name, kind = schema.get(number, ("", None))
        if isinstance(kind, dict):
            item[name] = _object(value, kind)
        elif kind == TEXTS:
            item.setdefault(name, []).append(value.decode())
        elif kind == TEXT and value:
            item[name] = value.decode()
        elif kind == NUMBER:
            item[name] = value
    return item


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == LENGTH:
            size, at = _varint(data, at)
        elif wire in (FIXED_64, FIXED_32):
            size = 8 if wire == FIXED_64 else 4
        else:
            raise ValueError(f"wire type {wire} of field {number} is unknown")
        if at + size > len(data):
            raise ValueError(f"field {number} is truncated")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at
