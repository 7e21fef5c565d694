"""What leads clients to a model from outside the cluster: valid, with every path, and the same for every release."""

import re
import textwrap

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.fit.resolution import ResolvedRelease, resolve
from slipway.tasks.contracts.site.exposure import Routes, Split
from slipway.tasks.serving.rendered import exposure, manifests
from tests.contracts.recorded import check_object, contract
from tests.fakes.releases import spec
from tests.fakes.workspace import site
from tests.support.kubernetes_schemas import validate
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_all_yaml, load_yaml
from tests.unit.manifests.objects import MANIFESTS, named

TEMPLATES = MANIFESTS / "serving"
RECORDS = {
    "HTTPRoute": "gateway_httproute.json",
    "GRPCRoute": "gateway_grpcroute.json",
    "Gateway": "gateway_gateway.json",
    "SecurityPolicy": "envoy_securitypolicy.json",
}
HOSTS = {"host": "{name}.models.example.com", "grpc_host": "{name}-grpc.models.example.com"}
NGINX = "nginx.ingress.kubernetes.io"
INGRESS = {
    "kind": "ingress",
    "class_name": "nginx",
    **HOSTS,
    "annotations": {"cert-manager.io/cluster-issuer": "internal", f"{NGINX}/proxy-read-timeout": "{timeout_s}"},
    "grpc_annotations": {f"{NGINX}/backend-protocol": "GRPC"},
}
GATEWAY = {"kind": "gateway", **HOSTS, "gateway": {"name": "models", "namespace": "gateways", "listener": "https"}}
EXPOSED = {"exposure": "ingress"}


def resolved(routes, **changes):
    return ResolvedRelease(spec(**changes), site(serving={"routes": routes}))


def routes(asked, **changes):
    serving = {**EXPOSED, "drain_s": 300}
    return exposure.routes(resolved(asked, serving=serving, **changes), TEMPLATES)


def check(item):
    if item["kind"] in RECORDS:
        recorded = contract(RECORDS[item["kind"]])
        assert item["apiVersion"] == f"{recorded['group']}/{recorded['served']}"
        check_object(item, recorded["openAPIV3Schema"])
    else:
        validate(item)


def without(asked, *names):
    return {name: value for name, value in asked.items() if name not in names}


OTHERS = [
    INGRESS,
    GATEWAY,
    {**INGRESS, "tls": False},
    without(INGRESS, "class_name", "annotations", "grpc_host"),
    {**GATEWAY, "gateway": {"name": "models"}},
]


@pytest.mark.parametrize("asked", OTHERS, ids=range(len(OTHERS)))
def test_what_is_rendered_follows_its_schema(asked):
    found = routes(asked)

    assert found
    for item in found:
        check(item)


def test_a_field_that_a_route_does_not_have_is_found():
    wrong, _ = routes(GATEWAY)
    wrong["spec"]["hostname"] = "demo.example.com"

    with pytest.raises(Exception, match="'hostname' was unexpected"):
        check(wrong)


def test_an_ingress_passes_every_path_of_both_ports_to_the_live_service():
    http, grpc = routes(INGRESS)

    found = {}
    for item in (http, grpc):
        [rule] = item["spec"]["rules"]
        [path] = rule["http"]["paths"]
        assert (path["path"], path["pathType"]) == ("/", "Prefix")
        assert item["spec"]["tls"] == [{"hosts": [rule["host"]], "secretName": "demo-tls"}]
        found[item["metadata"]["name"]] = (rule["host"], path["backend"]["service"])
    assert found == {
        "demo": ("demo.models.example.com", {"name": "demo", "port": {"number": 8000}}),
        "demo.grpc": ("demo-grpc.models.example.com", {"name": "demo", "port": {"number": 8001}}),
    }


def test_annotations_have_the_model_s_own_values_and_those_for_grpc_stay_there():
    http, grpc = (item["metadata"]["annotations"] for item in routes(INGRESS))

    assert http[f"{NGINX}/proxy-read-timeout"] == grpc[f"{NGINX}/proxy-read-timeout"] == "300"
    assert f"{NGINX}/backend-protocol" not in http
    assert grpc[f"{NGINX}/backend-protocol"] == "GRPC"


def test_a_route_passes_every_path_and_lets_a_request_take_as_long_as_the_spec_says():
    http, grpc = routes(GATEWAY)

    assert [item["kind"] for item in (http, grpc)] == ["HTTPRoute", "GRPCRoute"]
    [rule] = http["spec"]["rules"]
    assert "matches" not in rule
    assert (rule["backendRefs"], rule["timeouts"]) == ([{"name": "demo", "port": 8000}], {"request": "300s"})
    assert grpc["spec"]["rules"] == [{"backendRefs": [{"name": "demo", "port": 8001}]}]
    assert http["spec"]["parentRefs"] == [{"name": "models", "namespace": "gateways", "sectionName": "https"}]
    assert grpc["spec"]["hostnames"] == ["demo-grpc.models.example.com"]


@pytest.mark.parametrize("split", [Split(5), Split(0, mirror_percent=10)])
def test_a_canary_divides_the_requests_and_its_routes_follow_their_schemas(split):
    found = exposure.routes(resolved(GATEWAY, serving={**EXPOSED, "drain_s": 300}), TEMPLATES, split)

    for item in found:
        check(item)
    (http,), (grpc,) = (item["spec"]["rules"] for item in found)
    weights = [[each.get("weight") for each in rule["backendRefs"]] for rule in (http, grpc)]
    assert weights == [[95, 5] if split.candidate_percent else [None]] * 2
    mirror = {"backendRef": {"name": "demo-candidate", "port": 8000}, "percent": 10}
    mirrored = [{"type": "RequestMirror", "requestMirror": mirror}]
    assert http.get("filters") == (mirrored if split.mirror_percent else None)


def test_a_route_that_gives_a_canary_nothing_is_the_live_releases_own():
    plain = routes(GATEWAY)

    exposed = resolved(GATEWAY, serving={**EXPOSED, "drain_s": 300})
    assert exposure.routes(exposed, TEMPLATES, Split(0)) == plain


def test_everything_that_is_rendered_is_looked_for_when_it_has_to_go():
    made = {(item["kind"], item["metadata"]["name"]) for asked in (INGRESS, GATEWAY) for item in routes(asked)}

    assert made == set(exposure.places("demo"))


PAGE = (REPOSITORY / "docs" / "reach.md").read_text()
EXAMPLE = list(load_all_yaml(PAGE.split("```yaml\n")[1].split("```")[0]))


@pytest.mark.parametrize("item", EXAMPLE, ids=lambda item: item["kind"])
def test_the_example_with_authentication_follows_the_schemas(item):
    check(item)


@pytest.mark.parametrize("field", ["autoscale", "routes", "load_balancer"])
def test_the_examples_of_the_page_are_accepted(field):
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n)+", PAGE, re.MULTILINE)]
    found = [load_yaml(block)["serving"] for block in blocks if block.startswith("serving:") and f"{field}:" in block]

    for settings in found:
        spec(serving=settings) if field == "autoscale" else site(serving=settings)
    assert len(found) == {"routes": 2}.get(field, 1)


def test_a_model_that_is_not_exposed_has_none():
    assert exposure.routes(resolved(INGRESS), TEMPLATES) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": "models.example.com"}, "a host has {name} once"),
        ({"host": "{model}.example.com"}, "a host has {name} once"),
        ({"grpc_host": INGRESS["host"]}, "host and grpc_host are two hosts"),
        ({"gateway": {"name": "models"}}, "gateway is set for kind gateway, and only there"),
        ({"kind": "gateway"}, "gateway is set for kind gateway, and only there"),
        ({"kind": "gateway", "gateway": {"name": "models"}}, "class_name is an Ingress's"),
        ({"annotations": {"a b": "c"}}, "should match pattern"),
        ({"annotations": {"a": "c\x00"}}, "should match pattern"),
    ],
)
def test_what_could_not_work_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        Routes.model_validate({**INGRESS, **changes})


def test_a_site_that_does_not_say_how_refuses_it():
    with refused(what="serving.exposure ingress needs a host", remedy="with your own Ingress for Service demo"):
        resolve(spec(serving=EXPOSED), site())


AWS = "service.beta.kubernetes.io/aws-load-balancer-"


def balanced(settings, *, candidate=False):
    where = site(serving={"load_balancer": settings} if settings is not None else {})
    exposed = ResolvedRelease(spec(serving={"exposure": "load-balancer"}), where)
    [item] = manifests.service("demo-1", exposed, TEMPLATES, candidate=candidate)
    validate(item)
    return item


def test_a_load_balancer_is_internal_unless_the_site_says_otherwise():
    annotations = balanced({})["metadata"]["annotations"]

    assert annotations == {f"{AWS}type": "external", f"{AWS}nlb-target-type": "ip", f"{AWS}scheme": "internal"}


def test_a_load_balancer_has_the_settings_of_the_site():
    item = balanced(
        {
            "scheme": "internet-facing",
            "source_ranges": ["203.0.113.0/24"],
            "access_logs": {"bucket": "my-logs", "prefix": "models"},
            "annotations": {f"{AWS}additional-resource-tags": "model={name}"},
        }
    )

    annotations = item["metadata"]["annotations"]
    assert annotations[f"{AWS}scheme"] == "internet-facing"
    assert annotations[f"{AWS}additional-resource-tags"] == "model=demo"
    assert annotations[f"{AWS}attributes"] == (
        "access_logs.s3.enabled=true,access_logs.s3.bucket=my-logs,access_logs.s3.prefix=models"
    )
    assert item["spec"]["loadBalancerSourceRanges"] == ["203.0.113.0/24"]


def test_a_candidate_is_behind_no_load_balancer_and_without_settings_nothing_is_added():
    for item in (balanced({}, candidate=True), balanced(None)):
        assert "annotations" not in item["metadata"]
        assert "loadBalancerSourceRanges" not in item["spec"]


@pytest.mark.parametrize(
    ("group", "resources"),
    [("networking.k8s.io", ["ingresses"]), ("gateway.networking.k8s.io", ["httproutes", "grpcroutes"])],
)
def test_a_roll_out_may_do_with_routes_what_it_does_and_no_more(group, resources):
    rules = named("Role", "slipway-deployer")["rules"]

    [verbs] = [rule["verbs"] for rule in rules if (rule["apiGroups"], rule["resources"]) == ([group], resources)]

    assert sorted(verbs) == ["create", "delete", "get", "patch"]


@pytest.mark.parametrize(("name", "other"), [("demo-grpc", "demo"), ("a-grpc-grpc", "a-grpc")])
def test_a_model_whose_host_is_that_of_another_for_grpc_is_refused(name, other):
    with refused(what=f"it would be that of model {other} for gRPC", remedy="another name"):
        _ = resolve(spec(name=name, serving=EXPOSED), site(serving={"routes": INGRESS})).routes


@pytest.mark.parametrize("changes", [{"grpc_host": "{name}.grpc.example.com"}, {"grpc_host": None}])
def test_hosts_that_no_two_models_share_are_taken(changes):
    routes = INGRESS | changes

    assert resolve(spec(name="demo-grpc", serving=EXPOSED), site(serving={"routes": routes})).routes
