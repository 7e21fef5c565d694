"""The documents that Airflow exchanges with step pods through the object store: requests and results."""

import functools
import os
import time
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from slipway.airflow.site import current_site
from slipway.tasks.contracts.base import Contract, canonical_json, read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.release import MAX_REQUEST_BYTES, StepResult

if TYPE_CHECKING:
    from botocore.config import Config

MAX_RESULT_BYTES = 4 << 20
"""Whoever runs a step may write its result, and the scheduler's task keeps it."""
FRESH_S = 600
"""The credentials of Airflow's connection may be others after a step of hours."""


def write_request(uri: str, request: Contract, aws_conn_id: str) -> None:
    """Write a run's request to a step. A retry writes the same bytes again.

    Raises:
        AirflowFailException: the request is too large.
        AirflowException: the object store rejected it.
    """
    body = canonical_json(request.model_dump(mode="json"))
    if len(body) > MAX_REQUEST_BYTES:
        raise AirflowFailException(
            f"the request has {len(body)} bytes, expected at most {MAX_REQUEST_BYTES}. Make the spec shorter."
        )
    client, bucket, key = located(uri, aws_conn_id)
    try:
        client.put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json")
    except Exception as error:  # botocore's errors have no common base class
        raise AirflowException(
            f"{uri} could not be written: {error}. "
            f"Check that Airflow's connection {aws_conn_id} has s3:PutObject below requests/."
        ) from error


def read_result(uri: str, aws_conn_id: str) -> StepResult | None:
    """Read the result document at `uri`; None when there is none.

    Raises:
        AirflowFailException: it is no result.
        AirflowException: the object store rejected the request.
    """
    client, bucket, key = located(uri, aws_conn_id)
    try:
        body = client.get_object(Bucket=bucket, Key=key)["Body"].read(MAX_RESULT_BYTES + 1)
    except client.exceptions.NoSuchKey:
        return None
    except Exception as error:  # botocore's errors have no common base class
        raise AirflowException(
            f"{uri} could not be read: {error}. Check that Airflow's connection {aws_conn_id} has s3:GetObject there."
        ) from error
    if len(body) > MAX_RESULT_BYTES:
        raise AirflowFailException(
            f"{uri} has more than {MAX_RESULT_BYTES} bytes, which no step writes. Look who can write there."
        )
    try:
        return read_contract_json(StepResult, body, uri)
    except InputError as error:
        raise AirflowFailException(str(error)) from error


def located(uri: str, aws_conn_id: str) -> tuple[Any, str, str]:
    """The client, bucket and key of an object."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return s3_client(aws_conn_id), bucket, key


def s3_client(aws_conn_id: str) -> Any:
    """The client of an Airflow connection, which a process keeps for FRESH_S seconds: making it takes 0.03 s of CPU."""
    return s3_client_of(aws_conn_id, int(time.monotonic() // FRESH_S))


@functools.lru_cache(maxsize=1)
def s3_client_of(aws_conn_id: str, _period: int) -> Any:
    """The client of one of the periods of FRESH_S seconds."""
    # imported here, because boto3 takes half a second, which would slow down every DAG parse
    from botocore.config import Config  # noqa: PLC0415

    # boto3 signs links with Signature Version 2 otherwise, which most regions and stores refuse
    return site_client(aws_conn_id, Config(signature_version="s3v4"))


def site_client(aws_conn_id: str, config: "Config") -> Any:
    """The client of an Airflow connection in the site's region, with the connection's own `config` above this one.

    Its links lead to the host of the bucket's region if neither site nor connection names another store.

    Raises:
        AirflowFailException: the connection names another region, in which links would be signed that S3 refuses.
    """
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook  # noqa: PLC0415 - as above
    from botocore.config import Config  # noqa: PLC0415

    site = current_site().object_store
    connection, region = S3Hook(aws_conn_id=aws_conn_id), site.region
    if connection.region_name not in {None, region}:
        raise AirflowFailException(
            f"Airflow's connection {aws_conn_id} has region_name {connection.region_name}, expected {region}, "
            "object_store.region of the site file. Change the wrong one, or remove it from the connection."
        )
    elsewhere = connection.conn_config.get_service_endpoint_url("s3")
    style = "path" if elsewhere else site.addressing_style(os.environ)
    merged = Config(s3={"addressing_style": style}).merge(config).merge(connection.config)
    # the hook would look through the sources of all callers, to name them to AWS: 0.1 s of CPU in each task
    session = connection.get_session(region_name=region)
    return session.client("s3", endpoint_url=elsewhere, config=merged, verify=connection.verify)
