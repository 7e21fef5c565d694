"""Plans a spec as step plan does, over the templates that ship, with more disk than any model needs."""

import tempfile
from pathlib import Path

from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.steps import plan
from tests.fakes.clock import ManualClock
from tests.fakes.store.object_store import MemoryObjectStore
from tests.support.paths import REPOSITORY


def release_of(spec: ReleaseSpec, site: Site, hub, folder: Path, store=None) -> Release:
    """The release that plan stores. A scratch folder is made below `folder`, so that it serves several plans."""
    store = store or MemoryObjectStore()
    scratch = Path(tempfile.mkdtemp(dir=folder))
    workspace = Workspace(site, store, ManualClock(), scratch, REPOSITORY, lambda: hub, lambda _: 2**45)
    outcome = plan.run(PlanRequest(spec=spec, run="run-1"), workspace)
    return Release.model_validate_json(store.read_bytes(outcome.data["release"]))
