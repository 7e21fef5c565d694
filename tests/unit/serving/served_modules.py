"""Where the served models' own modules lie."""

from tests.support.paths import REPOSITORY

TEMPLATES = REPOSITORY / "model_repository_templates"
OPENVINO = TEMPLATES / "openvino" / "model" / "1"
