"""Renders what serves a release: its Deployment, and the Services that point at one. Pure but for reading templates."""

from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from tasks.contracts.errors import InputError
from tasks.contracts.release import Release
from tasks.contracts.site import Site

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
MODEL_LABEL, RELEASE_LABEL = "slipway.dev/model", "slipway.dev/release"
EXIT_TIMEOUT_S = 30
PRE_STOP_S = 5
"""Time for every proxy to stop sending connections before Triton stops to take them."""

Document = dict[str, Any]


def deployment(release: Release, release_uri: str, site: Site, templates: Path) -> list[Document]:
    """What runs the release, named after it."""
    serving, shape = release.spec.serving, site.shapes.get(site.serving.shape)  # type: ignore[call-overload]
    if shape is None:
        raise InputError(f"site {site.name} has no shape {site.serving.shape!r}, which serving.shape names. Add it.")
    image = serving.image or site.images.serving.get(release.spec.engine.kind)
    if image is None:
        raise InputError(f"site {site.name} names no serving image for engine {release.spec.engine.kind}. Add it.")
    values = {
        "name": release.id,
        "namespace": site.kubernetes.serving_namespace,
        "model": release.spec.name,
        "release_uri": release_uri,
        "commit": release.plan.source.commit,
        "engine": release.spec.engine.kind,
        "replicas": serving.replicas.min,
        "image": image,
        "fetch_image": image,
        "bind_address": site.serving.bind_address,
        "ports": PORTS,
        "shape": shape.model_dump(mode="json", exclude_none=True),
        "credentials_secret": site.object_store.credentials_secret,
        "exit_timeout_s": EXIT_TIMEOUT_S,
        "pre_stop_s": PRE_STOP_S,
        "grace_s": PRE_STOP_S + EXIT_TIMEOUT_S + 10,
        "ready_timeout_s": serving.ready_timeout_s,
    }
    return _rendered(templates / "deployment.yaml.j2", values)


def service(model: str, release_id: str, site: Site, templates: Path, *, candidate: bool) -> list[Document]:
    """The model's live Service, or its candidate's, selecting one release."""
    values = {
        "name": f"{model}-candidate" if candidate else model,
        "namespace": site.kubernetes.serving_namespace,
        "model": model,
        "release": release_id,
        "ports": PORTS,
        "role": "candidate" if candidate else "live",
    }
    return _rendered(templates / "service.yaml.j2", values)


def _rendered(template: Path, values: dict[str, Any]) -> list[Document]:
    """Every value is written as JSON, which YAML contains, so that none can become structure."""
    environment = Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - YAML; values pass tojson
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True}
    text = environment.from_string(template.read_text()).render(values)
    return [document for document in yaml.safe_load_all(text) if document]
