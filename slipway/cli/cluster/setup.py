"""`slipway setup`: prepares a cluster and an object store for a site, once and after every change to its file."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from slipway.cli.arguments import settings_of
from slipway.cli.terminal import echo
from slipway.tasks.contracts.fit.site_objects import CREDENTIALS, credentials_secrets, site_objects
from slipway.tasks.contracts.site.store_access import ACCOUNTS, iam_policy

if TYPE_CHECKING:
    from slipway.tasks.adapters.store.object_store import ObjectStore


def setup(
    context: typer.Context,
    *,
    render: Annotated[
        bool,
        typer.Option("--render", help="Print the objects for kubectl or GitOps, without Secrets, and apply nothing."),
    ] = False,
    iam_policies: Annotated[
        Path | None,
        typer.Option(
            "--iam-policies",
            help="Write the IAM policy of each service account to DIRECTORY, and apply nothing.",
            metavar="DIRECTORY",
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Prepare a cluster and an object store for the site.

    Creates the ConfigMap with the site file, the network policies for private endpoints, the bucket, and the object
    store's Secret if the site names one (from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY). Apply k8s_manifests/ first:
    it creates the namespaces. Run this command again after every change to the site file. At the end it writes, swaps
    and deletes a small object below setup/ to find out whether the object store ignores the conditions of writes.
    """
    settings = settings_of(context)
    site, text = settings.site(), settings.site_text()
    if render:
        echo(yaml.safe_dump_all(site_objects(site, text), sort_keys=False), nl=False)
        return
    if iam_policies is not None:
        iam_policies.mkdir(parents=True, exist_ok=True)
        for account in ACCOUNTS:
            path = iam_policies / f"{account}.json"
            path.write_text(
                json.dumps(iam_policy(account, site.object_store, site.signing), indent=2) + "\n", encoding="utf-8"
            )
            echo(path)
        return
    # the S3 and Kubernetes clients take half a second to import, which `slipway schema` need not wait for
    from slipway.tasks.adapters.site_setup import set_up  # noqa: PLC0415
    from slipway.tasks.adapters.store.s3 import S3ObjectStore  # noqa: PLC0415

    store = S3ObjectStore(site.object_store)
    for line in set_up(site, text, settings.cluster(), store, os.environ):
        echo(line)
    secret = site.object_store.credentials_secret
    if secret and not credentials_secrets(site, os.environ):
        echo(
            f"Secret {secret} was not changed: {' and '.join(CREDENTIALS)} are not both set. Set them and run this "
            "again, or create it with kubectl as docs/cluster-setup.md shows.",
            err=True,
        )
    echo(conditional_writes(store, site.object_store.root))


def conditional_writes(store: "ObjectStore", root: str) -> str:
    """What check_conditional_writes finds: whoever sets a site up need not be who writes releases.

    Raises:
        InputError, UnavailableError: see there.
    """
    from slipway.tasks.adapters.store.conditional_writes import check_conditional_writes  # noqa: PLC0415 - as above
    from slipway.tasks.adapters.store.object_store import DeniedError  # noqa: PLC0415

    try:
        return check_conditional_writes(store, root)
    except DeniedError as error:
        return f"conditional writes were not checked: {error}"
