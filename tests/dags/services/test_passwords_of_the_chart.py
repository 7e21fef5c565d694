"""The passwords of Airflow's chart in `make kind`, laid out as the values say, and opened by Airflow's own auth manager."""

import json
import subprocess

import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

PASSWORDS = {"admin": "for-ann", "ci": "for-ci"}
PREFIX = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_"
VALUES = REPOSITORY / "local" / "kind" / "airflow.values.yaml"


class Pod:
    """The files of the API server's pod in a folder: its volumes, and each container's mounts."""

    def __init__(self, values, folder):
        self.values, self.api = values, values["apiServer"]
        self.volumes = {each["name"]: each for each in [*values["volumes"], *self.api["extraVolumes"]]}
        self.folders = {name: folder / name for name in self.volumes}
        for made in self.folders.values():
            made.mkdir()

    def placed(self, text, mounts):
        """A path of a container, or any other word, as it is in the folder; and the volume that holds it."""
        for mount in mounts:
            if text.startswith(f"{mount['mountPath']}/"):
                return text.replace(mount["mountPath"], str(self.folders[mount["name"]]), 1), mount
        return text, None

    def initialise(self):
        for container in self.api["extraInitContainers"]:
            command = [self.placed(word, container["volumeMounts"])[0] for word in container["command"]]
            subprocess.run(command, check=True)


@pytest.fixture
def pod(tmp_path):
    return Pod(load_yaml(VALUES.read_text()), tmp_path)


def test_the_auth_manager_may_write_its_passwords_and_knows_those_of_the_secret(pod, monkeypatch):
    settings = {each["name"].removeprefix(PREFIX): each["value"] for each in pod.values["env"] if "value" in each}
    mounts = [*pod.values["volumeMounts"], *pod.api["extraVolumeMounts"]]
    file, mount = pod.placed(settings["PASSWORDS_FILE"], mounts)
    (secret,) = [name for name, volume in pod.volumes.items() if "secret" in volume]
    (pod.folders[secret] / "passwords.json").write_text(json.dumps(PASSWORDS))

    pod.initialise()
    monkeypatch.setenv(f"{PREFIX}PASSWORDS_FILE", file)
    monkeypatch.setenv(f"{PREFIX}USERS", settings["USERS"])
    SimpleAuthManager().init()

    assert "emptyDir" in pod.volumes[mount["name"]], "nobody may write to the volumes of Secrets and ConfigMaps"
    assert not mount.get("readOnly")
    assert SimpleAuthManager.get_passwords() == PASSWORDS
