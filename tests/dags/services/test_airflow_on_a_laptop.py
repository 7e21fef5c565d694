import configparser
import stat

from local.airflow.settings import AirflowHome
from tests.support.paths import REPOSITORY


def test_files_that_hold_secrets_are_readable_by_their_owner_alone(tmp_path):
    folder = tmp_path / "airflow"
    AirflowHome(folder, REPOSITORY, 8080, 8081).write()

    for name in ("airflow.cfg", "passwords.json", "secrets.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_second_start_keeps_passwords_and_secrets_and_takes_the_new_port(tmp_path):
    first = AirflowHome(tmp_path, REPOSITORY, 8080, 8081)
    first.write()
    passwords, before = first.passwords(), read(tmp_path)

    second = AirflowHome(tmp_path, REPOSITORY, 9090, 9091)
    second.write()

    assert second.passwords() == passwords
    assert set(passwords) == {"admin", "ci"}
    assert read(tmp_path)["api_auth"]["jwt_secret"] == before["api_auth"]["jwt_secret"]
    assert read(tmp_path)["api"]["port"] == "9090"
    assert read(tmp_path)["core"]["execution_api_server_url"] == "http://127.0.0.1:9091/execution/"


def read(folder):
    parser = configparser.ConfigParser()
    parser.read(folder / "airflow.cfg")
    return parser
