"""`slipway setup`: prepares a cluster and an object store for a site, once and after every change to its file."""

import os
from typing import Annotated

import typer
import yaml

from cli.arguments import settings_of
from tasks.contracts.site_objects import CREDENTIALS, credentials_secrets, site_objects


def setup(
    context: typer.Context,
    *,
    render: Annotated[
        bool,
        typer.Option("--render", help="Print the objects for kubectl or GitOps, without Secrets, and apply nothing."),
    ] = False,
) -> None:
    """Prepare a cluster and an object store for the site.

    Creates the ConfigMap with the site file, the network policies for private endpoints, the bucket, and the object
    store's Secret if the site names one (from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY). Apply k8s_manifests/ first:
    it creates the namespaces. Run this command again after every change to the site file.
    """
    settings = settings_of(context)
    site, text = settings.site(), settings.site_text()
    if render:
        typer.echo(yaml.safe_dump_all(site_objects(site, text), sort_keys=False), nl=False)
        return
    # the S3 and Kubernetes clients take half a second to import, which `slipway schema` need not wait for
    from tasks.adapters.s3 import S3ObjectStore  # noqa: PLC0415
    from tasks.adapters.site_setup import set_up  # noqa: PLC0415

    for line in set_up(site, text, settings.cluster(), S3ObjectStore(site.object_store), os.environ):
        typer.echo(line)
    secret = site.object_store.credentials_secret
    if secret and not credentials_secrets(site, os.environ):
        typer.echo(
            f"Secret {secret} was not changed: {' and '.join(CREDENTIALS)} are not both set. Set them and run this "
            "again, or create it with kubectl as docs/cluster-setup.md shows.",
            err=True,
        )
