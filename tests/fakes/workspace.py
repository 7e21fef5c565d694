"""A whole workspace over the fakes: real Workspace, real ArtifactStore, memory beneath."""

from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.site.site import Site
from tests.fakes.clock import ManualClock
from tests.fakes.hub import MemoryHub
from tests.fakes.store.object_store import MemoryObjectStore

SHAPE = {"cpu": "1", "memory": "8Gi", "scratch": "8Gi"}
SITE = {
    "apiVersion": "slipway/v1",
    "kind": "Site",
    "name": "test",
    "object_store": {"bucket": "bucket"},
    "images": {"tasks": "tasks:1", "serving": {"openvino": "triton:1"}},
    "shapes": dict.fromkeys(("small", "transfer", "compute", "serving"), SHAPE),
}


def site(**changes) -> Site:
    """A site without GPUs, with top-level sections replaced."""
    return Site.model_validate({**SITE, **changes})


def workspace(folder, *, hub=None, store=None, free_bytes=2**40, connect_hub=None, **site_changes) -> Workspace:
    """A workspace under `folder`, with one template of the openvino kind."""
    root, scratch = folder / "root", folder / "scratch"
    template = root / "model_repository_templates" / "openvino" / "config.pbtxt.j2"
    if not template.exists():
        template.parent.mkdir(parents=True)
        template.write_text("name: {{ name }}")
    scratch.mkdir(exist_ok=True)
    hub = hub or MemoryHub()
    return Workspace(
        site(**site_changes),
        store or MemoryObjectStore(),
        ManualClock(),
        scratch,
        root,
        connect_hub or (lambda: hub),
        lambda _: free_bytes,
    )
