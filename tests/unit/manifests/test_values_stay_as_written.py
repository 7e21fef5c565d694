"""No text of a spec or a site is expanded by Kubernetes on its way into a process, but for the pod's own address."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from local.cluster.node.environment import expand
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.kubernetes_text import REFERENCES, check_pod_values, container_values
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.serving.rendered import groups, manifests
from tests.fakes.documents.eks_site import eks
from tests.fakes.kube.kubernetes_expansion import expanded
from tests.fakes.releases import release
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

TEMPLATES = REPOSITORY / "k8s_manifests" / "serving"
EKS = eks()
URI = "s3://b/releases/x/release.json"
SECRETS = {"AWS_SECRET_ACCESS_KEY": "the secret", "HOME": "/root", "": "nothing", "a b": "spaced"}
HOSTILE = [
    "$(AWS_SECRET_ACCESS_KEY)", "$$(HOME)", "$(POD_IP)", "$(POD_IP)$(HOME)", "$$", "$", "$(", "$()", "a\nb", '"', "'", "x" * 1000,
    "a\x00b", "$(POD_IP", "0.0.0.0", "::", "::1 --x", "pool", "nvidia.com/gpu", "a/b/c", "-x", "_", "registry/image:1@sha256:DIGEST",
]  # fmt: skip
TEXTS = st.text(max_size=20) | st.sampled_from(HOSTILE) | st.sampled_from(HOSTILE).map(lambda text: f"a{text}")


def shape(**changes):
    return {name: {**value, **changes} for name, value in EKS["shapes"].items()}


TOKENS = {"issuer": "https://a.b", "audiences": ["models"], "jwks_uri": "https://a.b/jwks.json"}
PLACES = {
    "bind_address": lambda text: {"serving": {"bind_address": text}},
    "browser_origins": lambda text: {"serving": {"browser_origins": [text]}},
    "keys_secret": lambda text: {"serving": {"authentication": {"keys_secret": text}}},
    "issuer": lambda text: {"serving": {"authentication": {"jwt": {**TOKENS, "issuer": text}}}},
    "audience": lambda text: {"serving": {"authentication": {"jwt": {**TOKENS, "audiences": [text]}}}},
    "jwks_uri": lambda text: {"serving": {"authentication": {"jwt": {**TOKENS, "jwks_uri": f"https://a.b/{text}"}}}},
    "mpi_secret": lambda text: {"serving": {"mpi_secret": text}},
    "namespace": lambda text: {"kubernetes": {"serving_namespace": text}},
    "credentials": lambda text: {"object_store": {**EKS["object_store"], "credentials_secret": text}},
    "image": lambda text: {"images": {**EKS["images"], "serving": dict.fromkeys(EKS["images"]["serving"], text)}},
    "multinode": lambda text: {"images": {**EKS["images"], "multinode": text}},
    "selector key": lambda text: {"shapes": shape(node_selector={text: "x"})},
    "selector value": lambda text: {"shapes": shape(node_selector={"pool": text})},
    "toleration": lambda text: {"shapes": shape(tolerations=[{"key": "a", "operator": "Equal", "value": text}])},
    "memory": lambda text: {"shapes": shape(memory=text)},
}


def released(name):
    return release(**load_yaml((REPOSITORY / "specs" / f"{name}.yaml").read_text()))


ALONE, OVER_NODES = released("llama-3-8b-awq-l4"), released("llama-3-8b-tp4pp2-a10g")
MEMBERS = [groups.Member(released(name), URI) for name in ("llama-2-7b", "mistral-7b-vllm-a10g")]
MEMBERS = [member for member in MEMBERS if member.release.spec.serving.group]


def rendered(site):
    documents = [item for made in (ALONE, OVER_NODES) for item in manifests.deployment(made, URI, site, TEMPLATES)]
    return documents + [item for member in MEMBERS[:1] for item in groups.deployment([member], site, TEMPLATES)]


@given(place=st.sampled_from(sorted(PLACES)), text=TEXTS)
@example(place="memory", text="1")
@settings(max_examples=75)
def test_no_text_of_a_site_changes_what_a_servers_process_is_given(place, text):
    try:
        site = Site.model_validate({**EKS, **PLACES[place](text)})
    except ValidationError:
        return
    try:
        values = container_values(rendered(site))
    except InputError as error:
        if (place, error.what) == ("memory", "the server's memory cannot hold a batch of the longest prompts"):
            return
        raise

    meant = {reference[2:-1]: reference for reference in REFERENCES}
    assert [expanded(value, SECRETS | meant) for value in values] == values
    assert place == "bind_address" or "$(POD_IP)" not in text


def test_the_pods_own_address_is_the_one_expansion_that_a_site_may_ask_for():
    site = Site.model_validate({**EKS, "serving": {"bind_address": "$(POD_IP)"}})

    assert "--http-address=$(POD_IP)" in container_values(rendered(site))
    for text in ("$(POD_IP)$(HOME)", "$(AWS_SECRET_ACCESS_KEY)", "$$(POD_IP)", "localhost", "300.1.1.1", ""):
        with pytest.raises(ValidationError, match="bind_address"):
            Site.model_validate({**EKS, "serving": {"bind_address": text}})


@pytest.mark.parametrize("endpoint", ["http://", "http://a:99999", "http://a:b", "http://[", "http://a b", "ftp://a"])
def test_an_endpoint_without_a_host_or_a_port_that_exists_is_refused(endpoint):
    with pytest.raises(ValidationError, match="endpoint"):
        Site.model_validate({**EKS, "hub": {"endpoint": endpoint}})


@pytest.mark.parametrize("value", ["$(HOME)", "$$", "a$(POD_IP)$(X)", "$(", "a\x00b", "a\x1bb", "x" * 2**20])
def test_a_value_that_would_not_arrive_as_written_is_refused_however_it_came_there(value):
    with pytest.raises(InputError) as caught:
        check_pod_values(["fine", value])

    assert caught.value.what.endswith("would not reach the process unchanged")


def test_values_that_arrive_as_written_are_taken():
    check_pod_values(["$(POD_IP)", "--a=$(POD_NAME)-rank0", "--group=$(GROUP_KEY)", "$HOME", "a$", "é\n\t", ""])


@given(
    text=st.text("$()ab \n", max_size=30),
    variables=st.dictionaries(st.text("ab $(", max_size=2), st.text("$()x", max_size=4)),
)
@settings(max_examples=250)
def test_the_embedded_cluster_expands_as_kubernetes_does(text, variables):
    assert expand(text, variables) == expanded(text, variables)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(B) $(A)$(A)", "$(B) 11"),
        ("$(A", "$(A"),
        ("$A$$", "$A$"),
        ("$", "$"),
        ("$($$)", "$($$)"),
        ("$(a b)", "2"),
        ("$()", "$()"),
    ],
)
def test_references_escapes_and_what_is_neither(text, becomes):
    """The cases of kubernetes/kubernetes third_party/forked/golang/expansion/expand_test.go, and names of any form."""
    assert expanded(text, {"A": "1", "a b": "2"}) == expand(text, {"A": "1", "a b": "2"}) == becomes
