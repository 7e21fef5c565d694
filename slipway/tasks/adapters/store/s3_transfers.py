"""boto3's copies in parts. s3_files.py imports them late: that takes 0.05 s of a CPU, and few steps need them."""

from collections.abc import Mapping
from typing import Any

from boto3.s3.inject import copy
from boto3.s3.transfer import TransferConfig
from s3transfer.exceptions import S3CopyFailedError

from slipway.tasks.adapters.store.s3_errors import ChangedSourceError

COPIES_AT_ONCE = 8


def copy_in_parts(
    client: Any, source: Mapping[str, str], target: Mapping[str, str], extra: Mapping[str, Any], part_bytes: int
) -> None:
    """Copy an object within the store.

    Raises:
        ChangedSourceError: the source was changed meanwhile. Each part is copied only if its source has the ETag of the
            first request.
    """
    parts = TransferConfig(
        multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=COPIES_AT_ONCE
    )
    try:
        copy(client, dict(source), target["Bucket"], target["Key"], ExtraArgs=dict(extra), Config=parts)
    except S3CopyFailedError as error:
        raise ChangedSourceError(str(error)) from error
