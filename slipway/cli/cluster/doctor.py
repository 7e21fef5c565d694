"""`slipway doctor`: asks every service that a release needs, and prints commands for what it cannot check itself."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli.arguments import AsJson, settings_of
from slipway.cli.cluster.image_ages import image_ages
from slipway.cli.cluster.image_contract import CONFIRMATIONS, VENDORS, Confirmation, Image
from slipway.cli.terminal import echo
from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, TRTLLM_RELEASES, VLLM_RELEASES
from slipway.tasks.contracts.engine.triton_releases import Flavour
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.document_files import read_contract_file

if TYPE_CHECKING:
    from slipway.cli.json_documents import Check

RELEASE = re.compile(r"[0-9]{2}\.[0-9]{2}")
NEWEST = max(set(TRTLLM_RELEASES) & set(VLLM_RELEASES))
"""The newest Triton release that has an image for every GPU kind."""
PLACEHOLDERS: dict[Image, str] = {
    "tasks-gpu-trtllm": "slipway/tasks-gpu:dev-{release}-trtllm",
    "tasks-gpu-vllm": "slipway/tasks-gpu:dev-{release}-vllm",
    "tasks-modelopt": "slipway/tasks-modelopt:dev",
    "triton-multinode": "slipway/triton-multinode:dev-{release}-trtllm",
}
"""Names of this checkout's images, for use without a site file."""


def doctor(
    context: typer.Context,
    image_contract: Annotated[
        bool,
        typer.Option("--image-contract", help="Print commands that confirm what Slipway assumes about its images."),
    ] = False,
    images: Annotated[
        bool,
        typer.Option("--images", help="Print how old each serving image of the site is against the newest known."),
    ] = False,
    release: Annotated[str, typer.Option(help="Triton release of NVIDIA's images.")] = NEWEST,
    as_json: AsJson = False,
    site: Annotated[
        Path | None,
        typer.Option(
            help="Site file with the images to check; default: that of `slipway --site`, or names of local builds."
        ),
    ] = None,
) -> None:
    """Ask the site's Airflow, object store, Hub and cluster whether a release can work, and say what to do if not.

    The object store is asked with a small object below setup/, which is deleted. Exit 65 or 75: the worst of the
    checks. With --images or --image-contract it prints that instead: the second prints commands to run on a machine
    that can pull the images.
    """
    if not image_contract and not images:
        _probe(context, site, as_json=as_json)
        return
    if not RELEASE.fullmatch(release):
        raise InputError(
            "--release is not a Triton release",
            found=repr(release),
            expected=f"a year and a month, such as {NEWEST}",
            remedy="Correct --release.",
        )
    file = site or _site_of_program(context)
    read = read_contract_file(Site, file) if file else None
    if images:
        _print_ages(read)
    if image_contract:
        built = _of_site(read) if read else PLACEHOLDERS
        for each in CONFIRMATIONS:
            echo(_printed(each, release, built))


def _probe(context: typer.Context, site: Path | None, *, as_json: bool) -> None:
    # httpx takes a third of a second to import, which the other checks need not wait for
    from slipway.cli.cluster.probes import checks  # noqa: PLC0415
    from slipway.cli.json_documents import DoctorDocument  # noqa: PLC0415

    settings = settings_of(context)
    done: list[Check] = []
    for check in checks(settings if site is None else replace(settings, site_file=site)):
        done.append(check)
        if not as_json:
            _print(check)
    if as_json:
        echo(DoctorDocument(checks=done).model_dump_json(indent=2))
    if worst := max(check.exit_code for check in done):
        raise typer.Exit(worst)


def _print(check: "Check") -> None:
    echo(f"{'fails' if check.exit_code else 'works':<6} {check.name:<13} {check.text}")
    if check.remedy:
        echo(f"{'':<20} → {check.remedy}", bold=True)


def _print_ages(site: Site | None) -> None:
    if site is None:
        raise InputError("--images needs a site file, whose images it looks at", remedy="Name one with --site.")
    for line in image_ages(site):
        echo(line)


def _site_of_program(context: typer.Context) -> Path | None:
    """The option --site before the command's name. The environment does not choose the images to check."""
    path = context.find_root().params.get("site")
    return Path(path) if path else None


def _printed(each: Confirmation, release: str, built: dict[Image, str]) -> str:
    if each.image in VENDORS:
        name = f"nvcr.io/nvidia/tritonserver:{release}-{each.image}-python-py3"
    elif each.image in built:
        name = built[each.image].format(release=release)
    else:
        return f"# {each.contract}: the site has no image {each.image}\n"
    title = f"tests/contracts/{each.contract}" if each.contract.endswith((".yaml", ".json")) else each.contract
    gpus = "--gpus 1 " if each.gpu else ""
    command = f"docker run --rm {gpus}{shlex.quote(name)} bash -c {shlex.quote(each.command)}"
    return f"# {title}: shows {each.shows}\n{command}\n"


def _of_site(site: Site) -> dict[Image, str]:
    named: dict[Image, str | None] = {
        "tasks-gpu-trtllm": _serving_image(site, "trtllm"),
        "tasks-gpu-vllm": _serving_image(site, "vllm"),
        "tasks-modelopt": site.images.modelopt,
        "triton-multinode": site.images.multinode,
    }
    return {image: name for image, name in named.items() if name}


def _serving_image(site: Site, flavour: Flavour) -> str | None:
    kinds = (kind for kind, traits in ENGINE_KINDS.items() if traits.flavour == flavour)
    return next((site.images.serving[kind] for kind in kinds if kind in site.images.serving), None)
