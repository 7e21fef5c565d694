"""The documents that Airflow exchanges with step pods through the object store: requests and results."""

from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tasks.contracts.base import Contract, canonical_json
from tasks.contracts.release import MAX_REQUEST_BYTES, StepResult


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
    client, bucket, key = _at(uri, aws_conn_id)
    try:
        client.put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json")
    except Exception as error:  # botocore's errors have no common base class
        raise AirflowException(
            f"{uri} could not be written: {error}. "
            f"Check that Airflow's connection {aws_conn_id} has s3:PutObject below requests/."
        ) from error


def read_result(uri: str, aws_conn_id: str) -> StepResult | None:
    """Read the result document at `uri`; None when there is none."""
    client, bucket, key = _at(uri, aws_conn_id)
    try:
        body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except client.exceptions.NoSuchKey:
        return None
    return StepResult.model_validate_json(body)


def _at(uri: str, aws_conn_id: str) -> tuple[Any, str, str]:
    # imported here, because boto3 takes half a second, which would slow down every DAG parse
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook  # noqa: PLC0415

    bucket, key = S3Hook.parse_s3_url(uri)
    return S3Hook(aws_conn_id=aws_conn_id).get_conn(), bucket, key
