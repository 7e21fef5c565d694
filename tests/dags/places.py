"""The site of this tier and the credentials of its object store."""

from pathlib import Path

SITE = Path(__file__).with_name("site.yaml")
CREDENTIALS = {"login": "slipway", "password": "canary-of-the-store"}
