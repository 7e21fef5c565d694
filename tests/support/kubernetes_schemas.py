"""What the schemas of Kubernetes say of an object. Each is read once: the definitions of one release are megabytes."""

import functools
import re

import jsonschema
from kubernetes_validate import utils
from referencing import Registry, Resource

OLDEST_AND_NEWEST = ("1.32", "1.35")


def validate(item, *releases):
    """Raise jsonschema.ValidationError where a release knows no such field, or the value has the wrong type."""
    for release in releases or OLDEST_AND_NEWEST:
        _validator(release, item["kind"], item["apiVersion"]).validate(item)


@functools.cache
def _validator(release, kind, api_version):
    group_and_version = re.sub(r"^([^./]*)[^/]*/", r"\1-", api_version)
    schema = _contents(release, f"{kind.lower()}-{group_and_version}")
    return jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(release))


@functools.cache
def _definitions(release):
    return Resource.from_contents(_contents(release, "_definitions")) @ Registry()


def _contents(release, name):
    return utils.schema_contents(f"kubernetes-json-schema/v{release}.0-local-strict/{name}.json", release)
