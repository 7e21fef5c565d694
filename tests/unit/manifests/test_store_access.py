"""What each account may do in the object store: one table, for IAM, the laptop's S3 and the documentation."""

import json

import pytest

from local.object_store.identities import Identities
from local.object_store.signatures import Refusal
from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS
from slipway.tasks.contracts.site.signing import Signing
from slipway.tasks.contracts.site.site import ObjectStoreSite
from slipway.tasks.contracts.site.store_access import ACCOUNTS, IDENTITY_VARIABLE, iam_policy
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

MANIFESTS = REPOSITORY / "k8s_manifests"
STORE = ObjectStoreSite(bucket="models", prefix="prod")
IDENTITIES = Identities({account: iam_policy(account, STORE) for account in ACCOUNTS})


def request(account, method, path, query="", **headers):
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, **headers}
    if account:
        environ["HTTP_USER_AGENT"] = f"Boto3/1.43 md/Botocore#1.43 ua/2.1 app/{account} cfg/retry-mode#standard"
    return environ


def test_every_account_that_the_manifests_make_has_its_rights_and_no_other():
    made = [path for part in ("base", "monitoring") for path in (MANIFESTS / part).glob("serviceaccount-*.yaml")]

    assert {load_yaml(path.read_text())["metadata"]["name"] for path in made} == set(ACCOUNTS)
    assert {kind.service_account for kind in STEP_KINDS.values()} <= set(ACCOUNTS)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_policy_names_single_actions_on_keys_below_the_prefix(account):
    for statement in iam_policy(account, STORE)["Statement"]:
        assert "*" not in json.dumps(statement["Action"])
        for resource in statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]:
            whole_bucket = statement["Sid"] in ("FindAbsent", "FindUploads")
            assert (
                resource == "arn:aws:s3:::models" if whole_bucket else resource.startswith("arn:aws:s3:::models/prod/")
            )


def test_nobody_but_retention_deletes():
    assert {name for name, access in ACCOUNTS.items() if access.deletes} == {"slipway-retention"}
    assert not [key for key in ACCOUNTS["slipway-retention"].deletes if key.startswith("channels")]


def test_nobody_but_the_deployer_changes_what_is_live():
    writers = {name for name, access in ACCOUNTS.items() if "channels/*" in access.writes}

    assert writers == {"slipway-deployer"}


ALLOWED = [
    ("slipway-server", "GET", "/models/prod/artifacts/publish/1/a"),
    ("slipway-publisher", "POST", "/models/prod/artifacts/publish/1/a"),
    ("slipway-planner", "PUT", "/models/prod/artifacts/build/1/manifest.json"),
    ("slipway-planner", "GET", "/models"),
    (None, "DELETE", "/models/prod/channels/demo.json"),
]
DENIED = [
    ("slipway-server", "PUT", "/models/prod/artifacts/publish/1/a"),
    ("slipway-server", "GET", "/models/prod/channels/demo.json"),
    ("slipway-server", "GET", "/models"),
    ("slipway-planner", "PUT", "/models/prod/artifacts/build/1/weights"),
    ("slipway-measurer", "PUT", "/models/prod/channels/demo.json"),
    ("slipway-builder", "DELETE", "/models/prod/artifacts/build/1/a"),
    ("slipway-builder", "GET", "/models/other/artifacts/build/1/a"),
    ("slipway-builder", "GET", "/others/prod/artifacts/build/1/a"),
    ("slipway-stranger", "GET", "/models/prod/artifacts/build/1/a"),
]


@pytest.mark.parametrize(("account", "method", "path"), ALLOWED)
def test_the_laptops_s3_allows_what_the_policy_grants(account, method, path):
    IDENTITIES.check(request(account, method, path), b"")


@pytest.mark.parametrize(("account", "method", "path"), DENIED)
def test_the_laptops_s3_refuses_everything_else(account, method, path):
    with pytest.raises(Refusal, match=f"{account} is not authorized to perform: s3:"):
        IDENTITIES.check(request(account, method, path), b"")


def test_a_copy_needs_the_right_to_read_its_source():
    copied = {"HTTP_X_AMZ_COPY_SOURCE": "models/prod/datasets/demo.json"}
    with pytest.raises(Refusal, match=r"s3:GetObject on resource: arn:aws:s3:::models/prod/datasets/demo\.json"):
        IDENTITIES.check(request("slipway-publisher", "PUT", "/models/prod/artifacts/publish/1/a", **copied), b"")


def test_deleting_many_objects_needs_the_right_for_each():
    body = (
        b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>prod/artifacts/a</Key></Object></Delete>'
    )
    with pytest.raises(Refusal, match="s3:DeleteObject on resource: arn:aws:s3:::models/prod/artifacts/a"):
        IDENTITIES.check(request("slipway-builder", "POST", "/models", "delete="), body)


def test_an_account_that_may_not_list_is_not_told_that_an_object_is_absent():
    assert IDENTITIES.hides_absence(request("slipway-server", "GET", "/models/prod/artifacts/a"))
    assert not IDENTITIES.hides_absence(request("slipway-planner", "GET", "/models/prod/artifacts/a"))
    assert not IDENTITIES.hides_absence(request(None, "GET", "/models/prod/artifacts/a"))


def test_serving_pods_name_their_account():
    template = (REPOSITORY / "k8s_manifests" / "serving" / "fetch.yaml.j2").read_text()

    assert f"{{name: {IDENTITY_VARIABLE}, value: slipway-server}}" in template


def test_only_the_publisher_may_sign_with_the_sites_key():
    signing = Signing(kms_key="arn:aws:kms:eu-west-1:111122223333:key/1234")
    policies = {account: iam_policy(account, STORE, signing)["Statement"] for account in ACCOUNTS}

    signers = {name: each for name, policy in policies.items() for each in policy if "kms:Sign" in each["Action"]}
    assert {name: each["Resource"] for name, each in signers.items()} == {"slipway-publisher": signing.kms_key}
