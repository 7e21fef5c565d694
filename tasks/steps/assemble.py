"""assemble: render the Triton repository, boot it with its engine in real Triton, and believe only a right answer."""

from pathlib import Path

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.release import Release
from tasks.engines.boot import BootTest
from tasks.engines.protocol import ENGINE_FOLDER
from tasks.engines.registry import engine_for
from tasks.engines.repository import render

VERSION = "1"


def run(release: Release, workspace: Workspace) -> Outcome:
    """Render, boot, ask the first smoke question, and store the rendered files without the engine's.

    Publish puts the engine at `<model>/1/engine`, where it stood in the boot test.

    Raises:
        InputError: a template is wrong, the server did not come up, or its answer is not right.
    """
    spec, stages = release.spec, release.plan.stages
    engine = engine_for(spec.engine.kind)
    engine_dir, rendered = workspace.folder("engine"), workspace.folder("rendered")
    workspace.artifacts.fetch("build", stages["build"].key, engine_dir)
    started = workspace.clock.monotonic()
    values = engine.template_values(engine_dir, spec)
    models = render(workspace.templates, spec.engine.kind, values, rendered)
    repository = workspace.folder("repository")
    # some configurations hold the absolute path where serving pods keep the repository; here it lies elsewhere
    render(workspace.templates, spec.engine.kind, {**values, "repository_root": str(repository)}, repository)
    engine_dir.rename(repository / spec.name / VERSION / ENGINE_FOLDER)
    boot = BootTest(workspace.clock, workspace.folder("boot"), ready_timeout_s=spec.serving.ready_timeout_s)
    answer = boot.ask(repository, spec.name, spec.gate.smoke[0])
    manifest = workspace.artifacts.store(
        "assemble",
        stages["assemble"].key,
        rendered,
        inputs={"build": stages["build"].key},
        producer=stages["assemble"].fields.get("producer", {}),
        metrics={"boot": answer.as_json()},
        seconds=workspace.clock.monotonic() - started,
    )
    return Outcome(
        f"{', '.join(models)}: booted in {answer.ready_s:.1f} s, answered {answer.text.strip()[:60]!r}",
        {"key": manifest.key, "models": models, "files": _names(rendered), "boot": answer.as_json()},
    )


def _names(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
