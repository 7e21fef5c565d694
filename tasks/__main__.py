"""`python -m tasks <step>`: one step of a release in one process, by hand or in a pod.

    python -m tasks plan --spec FILE_OR_JSON --run ID [--revision R] [--force]
    python -m tasks STEP --release s3://.../release.json [--run ID]
    python -m tasks revert --name MODEL --run ID [--reason TEXT]
    python -m tasks fetch-repository --release s3://.../release.json --to FOLDER
    python -m tasks lead --group KEY --nodes N ...   (in a leader's pod, see tasks/rollout/lead.py)

Environment: SLIPWAY_SITE (site file, else --site), SLIPWAY_SCRATCH (folder for temporary files),
SLIPWAY_TERMINATION_LOG (file that gets the last line), HF_TOKEN, and what boto3 and the Kubernetes client read.

Exit codes: 0 done, 65 wrong input, 75 unavailable (a retry may help), 70 other; 143 and 130 after SIGTERM and SIGINT.
"""

import argparse
import importlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Never

import yaml

from tasks.adapters.clock import SystemClock
from tasks.adapters.object_store import S3ObjectStore
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.artifact import STAGES
from tasks.contracts.base import canonical_json, read_contract, read_contract_json
from tasks.contracts.errors import InputError, PipelineError
from tasks.contracts.plan import Plan, PlanRequest
from tasks.contracts.release import STEPS, Failure, Release, RevertRequest, Step, StepResult
from tasks.contracts.site import Site
from tasks.contracts.spec import ReleaseSpec

ROOT = Path(__file__).resolve().parent.parent
PLAN: Step = "plan"
REVERT: Step = "revert"
FETCH_REPOSITORY = "fetch-repository"
LEAD = "lead"
TERMINATION_BYTES = 4096  # Kubernetes keeps no more of a termination message
SIGNALLED = 128
QUIET = ("httpx", "httpcore", "urllib3", "botocore", "boto3", "s3transfer", "great_expectations")

log = logging.getLogger("tasks")


class Signalled(BaseException):
    """The process was told to end. No Exception, so that nothing on the way out takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = SIGNALLED + number


class Parser(argparse.ArgumentParser):
    """Wrong arguments are wrong input."""

    def error(self, message: str) -> Never:
        """Raise instead of exiting with argparse's own code."""
        raise InputError(f"{message}. {self.format_usage().strip()}")


@dataclass(frozen=True)
class Job:
    """A parsed command line, and where the result goes."""

    step: Step
    run: str
    result_uri: str
    request: PlanRequest | RevertRequest | Release
    release_uri: str | None = None


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run one step; its exit code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        code, words = 0, _run(_parsed(arguments, environment), environment)
    except PipelineError as error:
        code, words = error.exit_code, str(error)
    except Signalled as error:
        code, words = error.exit_code, f"ended by {signal.Signals(error.exit_code - SIGNALLED).name}"
    except Exception as error:
        log.exception("an error that nobody foresaw")
        code, words = PipelineError.exit_code, _unforeseen(error)
    (log.error if code else log.info)(words)
    _write_termination_log(environment.get("SLIPWAY_TERMINATION_LOG"), words)
    return code


def _parsed(arguments: Sequence[str] | None, environment: Mapping[str, str]) -> argparse.Namespace:
    parser = Parser(prog="python -m tasks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP", parser_class=Parser)
    for name in (*STEPS, REVERT, FETCH_REPOSITORY, LEAD):
        step = steps.add_parser(name)
        step.add_argument("--site", type=Path, default=environment.get("SLIPWAY_SITE") or None, help="site file")
        if name == LEAD:
            from tasks.rollout import lead

            lead.add_arguments(step)
            continue
        if name == REVERT:
            step.add_argument("--name", required=True, help="the model")
            step.add_argument("--run", required=True, help="identity of this run: [A-Za-z0-9._-]")
            step.add_argument("--reason", default="", help="kept in the channel's history")
        elif name != PLAN:
            step.add_argument("--release", required=True, help="URI of release.json")
        if name == FETCH_REPOSITORY:
            step.add_argument("--to", type=Path, required=True, help="folder that becomes the model repository")
        elif name not in {PLAN, REVERT}:
            step.add_argument("--run", help="identity of this run; that of the release's newest plan when absent")
        if name == PLAN:
            step.add_argument("--spec", required=True, help="file of a release spec, or its JSON text")
            step.add_argument("--run", required=True, help="identity of this run: [A-Za-z0-9._-]")
            step.add_argument("--revision", help="in place of the spec's source.revision")
            step.add_argument("--force", action="store_true", help="make every artifact anew")
    parsed = parser.parse_args(arguments)
    if parsed.site is None:
        raise InputError("no site is known: give --site or set SLIPWAY_SITE to the site file.")
    return parsed


def _run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> str:
    """Run what was asked in a scratch folder that is gone afterwards; what it did, in a line."""
    site = read_contract(Site, _read_yaml(parsed.site), str(parsed.site))
    if parsed.step == LEAD:
        _lead(parsed, site, environment)
    base = environment.get("SLIPWAY_SCRATCH") or tempfile.gettempdir()
    scratch = Path(tempfile.mkdtemp(prefix=f"slipway-{parsed.step}-", dir=base))
    try:
        workspace = _workspace(site, scratch, environment)
        if parsed.step == FETCH_REPOSITORY:
            from tasks.steps.fetch_repository import run

            return run(_read_release(parsed.release, workspace), workspace, parsed.to).summary
        return _report(_job(parsed, workspace), workspace)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _lead(parsed: argparse.Namespace, site: Site, environment: Mapping[str, str]) -> Never:
    """Become mpirun: what this process is from then on ends with the server's own exit code."""
    from tasks.adapters.kube import Cluster
    from tasks.adapters.process import become
    from tasks.rollout import lead

    folder = Path(environment.get("SLIPWAY_SCRATCH") or tempfile.gettempdir())
    cluster = Cluster.connect(site)
    group = lead.group_of(parsed)
    become(
        lead.command(group, cluster, SystemClock(), public_key=lead.PUBLIC_KEY, folder=folder, environment=environment)
    )


def _workspace(site: Site, scratch: Path, environment: Mapping[str, str]) -> Workspace:
    clock = SystemClock()

    def connect_hub() -> Any:
        # read by huggingface_hub as it is imported
        os.environ |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
        from tasks.adapters.hub import HuggingFaceHub

        return HuggingFaceHub(site.hub.endpoint, environment.get("HF_TOKEN") or None, clock)

    return Workspace(site, S3ObjectStore(site.object_store), clock, scratch, ROOT, connect_hub)


def _job(parsed: argparse.Namespace, workspace: Workspace) -> Job:
    if parsed.step == PLAN:
        data, what = _read_spec(parsed.spec)
        spec = read_contract(ReleaseSpec, data, what)
        asked = {"spec": spec, "run": parsed.run, "revision": parsed.revision, "force": parsed.force}
        request = read_contract(PlanRequest, asked, what)
        return Job(PLAN, request.run, workspace.layout.plan(request.spec.name, request.run), request)
    if parsed.step == REVERT:
        asked = {"name": parsed.name, "run": parsed.run, "reason": parsed.reason}
        revert = read_contract(RevertRequest, asked, "revert")
        return Job(REVERT, revert.run, workspace.layout.revert(revert.name, revert.run), revert)
    release = _of_run(_read_release(parsed.release, workspace), parsed.run)
    uri = workspace.layout.result(release.spec.name, release.id, parsed.step)
    return Job(parsed.step, release.plan.run, uri, release, parsed.release)


def _report(job: Job, workspace: Workspace) -> str:
    """Do the job and write its result, well or not."""
    clock, started_at, began = workspace.clock, workspace.clock.now(), workspace.clock.monotonic()

    def seconds() -> float:
        return clock.monotonic() - began

    log.info("%s for run %s begins", job.step, job.run)
    try:
        outcome = _work(job, workspace)
    except Exception as error:
        failed = _failed(job, error, started_at, seconds())
        try:
            workspace.store.put_bytes(job.result_uri, _document(failed))
        except PipelineError as unwritten:  # the step's own error says more than that the store is away as well
            log.warning("the result could not be written: %s", unwritten)
        raise
    result = StepResult(
        step=job.step,
        release=outcome.data.get("release") if job.step == PLAN else job.release_uri,
        run=job.run,
        outcome="stored" if outcome.stored else "done",
        summary=outcome.summary,
        data=outcome.data,
        started_at=started_at,
        seconds=seconds(),
    )
    workspace.store.put_bytes(job.result_uri, _document(result))
    return f"{job.step}: {outcome.summary}"


def _work(job: Job, workspace: Workspace) -> Outcome:
    if isinstance(job.request, Release) and job.step in STAGES:
        key = job.request.plan.stages[job.step].key
        if found := workspace.artifacts.find(job.step, key):
            uri = workspace.layout.artifact(job.step, key)
            data = {"key": key, "uri": uri, "size_bytes": found.size_bytes, "metrics": found.metrics}
            return Outcome(f"{key[:12]} is stored, nothing was run", data, stored=True)
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read by great_expectations as it is imported
    module = importlib.import_module(f"tasks.steps.{job.step.replace('-', '_')}")
    outcome: Outcome = module.run(job.request, workspace)
    return outcome


def _failed(job: Job, error: Exception, started_at: datetime, seconds: float) -> StepResult:
    deliberate = isinstance(error, PipelineError)
    message = str(error) if deliberate else _unforeseen(error)
    code = error.exit_code if isinstance(error, PipelineError) else PipelineError.exit_code
    return StepResult(
        step=job.step,
        release=job.release_uri,
        run=job.run,
        outcome="failed",
        summary=message,
        started_at=started_at,
        seconds=seconds,
        error=Failure(kind=type(error).__name__, exit_code=code, message=message),
    )


def _document(result: StepResult) -> bytes:
    return canonical_json(result.model_dump(mode="json"))


def _read_release(uri: str, workspace: Workspace) -> Release:
    return read_contract_json(Release, workspace.store.read_bytes(uri), uri)


def _of_run(release: Release, run: str | None) -> Release:
    """The release as one run sees it: another run that asked for the same artifacts may have planned it anew."""
    if run is None:
        return release
    asked = release.plan.model_dump() | {"run": run}
    return release.model_copy(update={"plan": read_contract(Plan, asked, "--run")})


def _read_spec(argument: str) -> tuple[Any, str]:
    """The spec as data, and how a message names it."""
    if not argument.lstrip().startswith("{"):
        return _read_yaml(Path(argument)), argument
    try:
        return json.loads(argument), "--spec"
    except ValueError as error:
        raise InputError(f"--spec is no JSON: {error}. Give a file or the spec's JSON text.") from error


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a YAML file. Check the path.") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path} is no YAML: {error}. Mend it.") from error


def _unforeseen(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"unforeseen {type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {str(error)[:200]}"


def _write_termination_log(path: str | None, words: str) -> None:
    if path:
        line = " ".join(words.split()).encode()[: TERMINATION_BYTES - 1].decode(errors="ignore")
        Path(path).write_text(f"{line}\n", encoding="utf-8")


def _end(number: int, _: Any) -> None:
    """Unwind from wherever the process is; a second signal does not interrupt the cleaning up."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise Signalled(number)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    if exit_code >= SIGNALLED:
        os._exit(exit_code)  # threads that still wait for a socket would hold the process up
    sys.exit(exit_code)
