"""kubectl as people use it."""

import json

POD = """
apiVersion: v1
kind: Pod
metadata: {name: talks, labels: {app: talks}}
spec:
  restartPolicy: Never
  containers:
    - name: base
      image: test/python:1
      command: [python, -c, "import time; print('one', flush=True); time.sleep(1); print('two')"]
"""
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{{}}}\n"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: idle}
spec:
  replicas: 1
  selector: {matchLabels: {app: idle}}
  template:
    metadata: {labels: {app: idle}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: idle, image: "test/python:1", command: [python, -c, "import time; time.sleep(99)"]}]
"""


def test_apply_logs_get_describe_and_delete_a_pod(space):
    applied = space.kubectl("apply", "-f", "-", text=POD).stdout
    space.started("talks")
    followed = space.kubectl("logs", "-f", "talks").stdout
    space.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talks", "--timeout=180s")
    listed = space.kubectl("get", "pods", "-o", "wide").stdout.splitlines()
    described = space.kubectl("describe", "pod", "talks").stdout
    deleted = space.kubectl("delete", "pod", "talks").stdout

    assert applied == "pod/talks created\n"
    assert followed == "one\ntwo\n"
    assert listed[0].split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert listed[1].split()[:4] == ["talks", "0/1", "Completed", "0"]
    assert "Started container base" in described
    assert 'pod "talks" deleted' in deleted
    assert space.kubectl("get", "pods").stdout == ""


def test_apply_again_changes_only_what_changed(space):
    first = space.kubectl("apply", "-f", "-", text=CONFIG.format("a: '1', b: '2'")).stdout
    same = space.kubectl("apply", "-f", "-", text=CONFIG.format("a: '1', b: '2'")).stdout
    less = space.kubectl("apply", "-f", "-", text=CONFIG.format("b: '3'")).stdout
    data = json.loads(space.kubectl("get", "configmap", "settings", "-o", "json").stdout)["data"]

    assert [text.split()[1] for text in (first, same, less)] == ["created", "unchanged", "configured"]
    assert data == {"b": "3"}


def test_server_side_apply_creates_and_merges(space):
    space.kubectl("apply", "--server-side", "-f", "-", text=CONFIG.format("a: '1'"))
    space.kubectl("apply", "--server-side", "-f", "-", text=CONFIG.format("a: '2'"))

    assert space.kubectl("get", "configmap", "settings", "-o", "jsonpath={.data.a}").stdout == "2"


def test_deployments_scale_restart_and_undo(space):
    space.kubectl("apply", "-f", "-", text=DEPLOYMENT)
    space.kubectl("rollout", "status", "deployment/idle", "--timeout=180s")
    space.kubectl("scale", "deployment/idle", "--replicas=2")
    space.kubectl("rollout", "status", "deployment/idle", "--timeout=180s")
    space.kubectl("rollout", "restart", "deployment/idle")
    space.kubectl("rollout", "status", "deployment/idle", "--timeout=180s")
    undone = space.kubectl("rollout", "undo", "deployment/idle").stdout
    space.kubectl("rollout", "status", "deployment/idle", "--timeout=180s")

    assert "rolled back" in undone
    assert space.kubectl("get", "deployment", "idle").stdout.splitlines()[1].split()[1] == "2/2"
    space.kubectl("delete", "deployment", "idle")
    space.kubectl("wait", "--for=delete", "pod", "-l", "app=idle", "--timeout=180s")


def test_wait_sees_a_condition(space):
    space.kubectl("apply", "-f", "-", text=DEPLOYMENT)

    said = space.kubectl("wait", "--for=condition=Available", "deployment/idle", "--timeout=180s").stdout

    assert "condition met" in said


def test_a_base_of_records_is_applied(space, tmp_path):
    kinds = {
        "Role": ("rbac.authorization.k8s.io/v1", {"rules": []}),
        "NetworkPolicy": ("networking.k8s.io/v1", {"spec": {"podSelector": {}}}),
        "ResourceQuota": ("v1", {"spec": {"hard": {"pods": "10"}}}),
        "PodDisruptionBudget": ("policy/v1", {"spec": {"minAvailable": 1}}),
        "ServiceAccount": ("v1", {}),
    }
    names = []
    for kind, (version, more) in kinds.items():
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "one", "namespace": space.name}, **more}
        (tmp_path / f"{kind.lower()}.yaml").write_text(json.dumps(body))
        names.append(f"{kind.lower()}.yaml")
    (tmp_path / "kustomization.yaml").write_text(json.dumps({"resources": names}))

    said = space.kubectl("apply", "-k", str(tmp_path)).stdout

    assert said.count("created") == len(kinds)


def test_exec_is_refused_with_a_reason(space):
    space.kubectl("apply", "-f", "-", text=POD.replace("time.sleep(1)", "time.sleep(600)"))

    done = space.kubectl("exec", "talks", "--", "true", check=False)

    assert done.returncode != 0
    assert "offers no exec" in done.stderr


def test_a_misspelt_field_is_refused(space):
    done = space.kubectl("apply", "-f", "-", text=POD.replace("restartPolicy", "restartPolcy"), check=False)

    assert done.returncode != 0
    assert "restartPolcy" in done.stderr
