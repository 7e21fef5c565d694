"""The served model's own package is found as Triton's stub finds it: in the version's folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "model_repository_templates" / "openvino" / "model" / "1"))
