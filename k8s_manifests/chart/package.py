"""Packages the Helm chart: `make chart`. Its objects are what `kubectl kustomize` makes of base and each component.

python3 k8s_manifests/chart/package.py .slipway/chart
"""

import io
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

CHART = Path(__file__).resolve().parent
MANIFESTS = CHART.parent
SOURCES = ("Chart.yaml", "values.yaml", "templates/objects.yaml")


def package(target: Path) -> Path:
    """Write the package into a folder.

    Raises:
        subprocess.CalledProcessError: kustomize refuses a folder; it has said why.
    """
    version = tomllib.loads((MANIFESTS.parent / "pyproject.toml").read_text())["project"]["version"]
    files = {name: (CHART / name).read_text() for name in SOURCES}
    files["Chart.yaml"] = re.sub(r"(?m)^version: .*", f"version: {version}\nappVersion: {version}", files["Chart.yaml"])
    for folder in kustomizations():
        files[f"manifests/{folder.name}.yaml"] = objects(folder)
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path := target / f"slipway-{version}.tgz", "w:gz") as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"slipway/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def kustomizations() -> list[Path]:
    """Base and the components; an overlay is a site's own."""
    return sorted(file.parent for file in MANIFESTS.glob("*/kustomization.yaml"))


def objects(folder: Path) -> str:
    """What kustomize makes of a folder, as a list in YAML."""
    done = subprocess.run(["kubectl", "kustomize", folder], stdout=subprocess.PIPE, text=True, check=True)
    documents = done.stdout.rstrip().split("\n---\n")
    return "".join("- " + "\n  ".join(document.split("\n")) + "\n" for document in documents)


if __name__ == "__main__":
    print(package(Path(sys.argv[1])))
