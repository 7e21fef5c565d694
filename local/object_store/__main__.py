"""`python -m local.object_store`: serve S3 on a loopback port. Any signal may end it without losing an object.

Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. The port opens after every stored object is loaded.
"""

import argparse
import os
from pathlib import Path

from botocore.credentials import Credentials
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from local.object_store.identities import Identities
from local.object_store.kept_buckets import KeptBuckets
from local.object_store.server import SignedS3
from local.private_files import PRIVATE_UMASK
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.site.store_access import ACCOUNTS, iam_policy
from slipway.tasks.document_files import read_document

HOST = "127.0.0.1"


def main() -> None:
    """Serve until a signal ends the process."""
    parser = argparse.ArgumentParser(prog="python -m local.object_store", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the objects")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--site", type=Path, required=True, help="site file with the bucket that the accounts use")
    arguments = parser.parse_args()
    os.umask(PRIVATE_UMASK)
    credentials = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    store = read_contract(Site, read_document(arguments.site), str(arguments.site)).object_store
    identities = Identities({account: iam_policy(account, store) for account in ACCOUNTS})
    kept = KeptBuckets(arguments.folder)
    kept.restore()
    application = SignedS3(create_backend_app("s3"), credentials, identities, kept.keep)
    make_server(HOST, arguments.port, application, threaded=True, request_handler=MotoRequestHandler).serve_forever()


if __name__ == "__main__":
    main()
