"""assemble: render the Triton repository, boot it with its engine in real Triton, and believe only a right answer."""

from functools import partial
from pathlib import Path
from typing import Any

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.engines.registry import maker_for
from slipway.tasks.serving.pod.boot import BootAnswer, BootPlace, BootTest
from slipway.tasks.serving.rendered.commands import Server, in_a_pod, server_of
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION, ENGINE_FOLDER, MODEL_VERSION
from slipway.tasks.serving.rendered.questions import with_tokens
from slipway.tasks.serving.rendered.repository import render


def run(release: Release, workspace: Workspace) -> Outcome:
    """Render, boot, ask the first smoke question, and store the rendered files without the engine's.

    Publish puts the engine at `<model>/1/engine`, where it stood in the boot test. What spans nodes cannot be booted by
    one pod; its first server is the candidate's.

    Raises:
        InputError: a template is wrong, the server did not come up, or its answer is not right.
    """
    spec, stages = release.spec, release.plan.stages
    engine_dir, rendered = workspace.folder("engine"), workspace.folder("rendered")
    nodes = ResolvedRelease(spec, workspace.site).nodes
    boots = nodes == 1
    workspace.artifacts.fetch("build", stages["build"].key, engine_dir, only=None if boots else ENGINE_DESCRIPTION)
    started = workspace.clock.monotonic()
    values = maker_for(spec.engine.kind).template_values(engine_dir, spec)
    models = render(workspace.templates, spec.engine.kind, values, rendered)
    answer = _booted(release, values, engine_dir, workspace) if boots else None
    boot = answer.as_json() if answer else {"not_booted": f"the engine's ranks span {nodes} nodes"}
    manifest = workspace.artifacts.store(
        "assemble",
        stages["assemble"].key,
        rendered,
        inputs={"build": stages["build"].key},
        producer=stages["assemble"].producer,
        metrics={"boot": boot},
        seconds=workspace.clock.monotonic() - started,
    )
    said = (
        f"booted in {answer.ready_s:.1f} s, answered {answer.text.strip()[:60]!r}"
        if answer
        else f"not booted: {boot['not_booted']}"
    )
    return Outcome(
        f"{', '.join(models)}: {said}",
        {"key": manifest.key, "models": models, "files": _names(rendered), "boot": boot},
    )


def _booted(release: Release, values: dict[str, Any], engine_dir: Path, workspace: Workspace) -> BootAnswer:
    """The answer of a server that is started as the candidate will be."""
    spec = release.spec
    repository = workspace.folder("repository")
    # some configurations hold the absolute path where serving pods keep the repository. The GPU ids of a group's member
    # stay as they are: this pod has as many GPUs as they reach, and an engine loads on some ids and not on others
    here = {**values, "repository_root": str(repository)}
    render(workspace.templates, spec.engine.kind, here, repository)
    engine_dir.rename(repository / spec.name / MODEL_VERSION / ENGINE_FOLDER)
    boot = BootTest(
        workspace.clock,
        workspace.folder("boot"),
        partial(serving_command, spec),
        ready_timeout_s=spec.serving.ready_timeout_s,
    )
    return boot.ask(repository, spec.name, with_tokens(spec.gate.smoke[0], release))


def serving_command(spec: ReleaseSpec, place: BootPlace) -> list[str]:
    """What serves the release, in another place."""
    server = Server(
        place.address,
        place.exit_timeout_s,
        place.shared_memory_prefix,
        str(place.repository),
        place.ports,
        control_key=place.shared_memory_prefix,
    )
    return in_a_pod(server_of(spec, server), spec.engine.ranks)


def _names(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
