"""`slipway setup` prints what it would apply; what it applies, the laptop's stack runs each time it starts."""

from tests.support.yaml_documents import load_all_yaml

SITE = """apiVersion: slipway/v1
kind: Site
name: corp
object_store: {bucket: slipway, endpoint: "http://10.9.8.7:9000", credentials_secret: slipway-s3}
hub: {endpoint: "https://hub.corp.example", networks: [10.20.0.0/16]}
images: {tasks: t, serving: {openvino: o}}
shapes: {}
"""


def test_rendering_prints_objects_for_kubectl_and_no_secret(slipway, tmp_path, monkeypatch):
    file = tmp_path / "site.yaml"
    file.write_text(SITE)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")

    code, printed = slipway("--site", str(file), "setup", "--render")

    objects = [(item["kind"], item["metadata"]["name"]) for item in load_all_yaml(str(printed))]
    assert code == 0
    assert objects == [
        ("ConfigMap", "slipway-site"),
        ("ConfigMap", "slipway-site"),
        ("NetworkPolicy", "site-hub"),
        ("NetworkPolicy", "site-datasets"),
        ("NetworkPolicy", "site-object-store"),
        ("NetworkPolicy", "site-object-store"),
    ]
    assert "canary" not in printed


def test_a_broken_site_file_is_refused_before_anything_is_applied(slipway, tmp_path):
    file = tmp_path / "site.yaml"
    file.write_text(SITE.replace("10.20.0.0/16", "everywhere"))

    code, printed = slipway("--site", str(file), "setup", "--render")

    assert code == 65
    assert "hub.networks" in printed
