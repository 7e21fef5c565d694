"""sites/eks.yaml as whoever uses it fills it in."""

from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

FILE = REPOSITORY / "sites" / "eks.yaml"


def eks():
    """The document, with a digest for each image that needs one."""
    return load_yaml(FILE.read_text().replace("@sha256:DIGEST", f"@sha256:{'d' * 64}"))
