"""boto3's transfers in parts. s3_files.py imports them late: that takes 0.05 s of a CPU, and few steps need them."""

from collections.abc import Mapping
from typing import Any

from boto3.exceptions import S3UploadFailedError
from boto3.s3.inject import copy
from boto3.s3.transfer import S3Transfer, TransferConfig
from s3transfer.exceptions import S3CopyFailedError

from slipway.tasks.adapters.store.parts import PART_BYTES, Lanes
from slipway.tasks.adapters.store.s3_errors import ChangedSourceError, FailedUploadError

COPIES_AT_ONCE = 8


class S3Transfers:
    """Uploads and copies by one client. Safe to use from several threads."""

    def __init__(self, client: Any, lanes: Lanes) -> None:
        self._client = client
        # one for all uploads: each has its own connections and its own limit
        self._uploads = S3Transfer(
            client,
            TransferConfig(
                multipart_threshold=2 * PART_BYTES,
                multipart_chunksize=2 * PART_BYTES,
                max_concurrency=max(1, lanes.connections // 2),
                max_bandwidth=lanes.limit.bytes_per_s,
            ),
        )

    def upload(self, path: str, bucket: str, key: str, progress: Any, extra: Mapping[str, Any]) -> None:
        """Upload a file.

        Raises:
            FailedUploadError: the store refused it, for the reason that is the error's cause.
        """
        try:
            self._uploads.upload_file(path, bucket, key, progress, extra)
        except S3UploadFailedError as error:
            raise FailedUploadError(str(error)) from (error.__context__ or error.__cause__)

    def copy(self, source: Mapping[str, str], bucket: str, key: str, extra: Mapping[str, Any], part_bytes: int) -> None:
        """Copy an object within the store, in parts.

        Raises:
            ChangedSourceError: the source was changed meanwhile. Each part is copied only if its source has the ETag of
                the first request.
        """
        parts = TransferConfig(
            multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=COPIES_AT_ONCE
        )
        try:
            copy(self._client, dict(source), bucket, key, ExtraArgs=extra, Config=parts)
        except S3CopyFailedError as error:
            raise ChangedSourceError(str(error)) from error
