"""Every service account calls the API for everything that no role of its own grants, and is refused each time."""

import json

import pytest
import urllib3

from tests.local.rights.grants import Call, account, accounts, is_granted, people
from tests.support.waiting import PATIENCE_S

NAMESPACES = ("slipway", "slipway-serving", "default")
NEVER = {"secrets", "configmaps", "serviceaccounts/token", "roles", "rolebindings", "nodes", "namespaces"}
"""Some of what no account may touch, to see that it was tried."""
FORBIDDEN = 403
PATCH = "application/merge-patch+json"


class Api:
    """Requests to the API server with a token of one's own."""

    def __init__(self, api):
        settings = api.configuration
        self.host = settings.host
        self.pool = urllib3.PoolManager(ca_certs=settings.ssl_ca_cert, retries=False, timeout=PATIENCE_S)

    def code(self, token, method, path):
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": PATCH if method == "PATCH" else "application/json",
        }
        body = None if method == "GET" else b"{}"
        with self.pool.request(method, self.host + path, body=body, headers=headers, preload_content=False) as answer:
            if answer.status == FORBIDDEN:
                answer.read()  # the connection is used again
            return answer.status

    def document(self, token, path):
        answer = self.pool.request("GET", self.host + path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status == 200, (path, answer.data[:256])
        return json.loads(answer.data)

    def calls(self, token):
        """Every verb on every resource, in each namespace or in the cluster, as the server's own lists name them."""
        groups = [group["preferredVersion"]["groupVersion"] for group in self.document(token, "/apis")["groups"]]
        for group_version in ("v1", *groups):
            path = f"/apis/{group_version}" if "/" in group_version else "/api/v1"
            group, _, version = group_version.rpartition("/")
            for resource in self.document(token, path)["resources"]:
                places = ("", *NAMESPACES) if resource["namespaced"] else ("",)
                for verb in resource["verbs"]:
                    # across namespaces there are only lists
                    for place in places if verb in {"list", "watch"} or not resource["namespaced"] else NAMESPACES:
                        yield Call(verb, group, version, resource["name"], place)


@pytest.fixture(scope="module")
def server(api):
    return Api(api)


def assert_refused(server, token, subject):
    """Whoever has the token is refused everything that no role of the subject grants."""
    calls = [call for call in server.calls(token) if not is_granted(call, subject)]

    codes = {call: server.code(token, *call.request()) for call in calls}

    assert [f"{code}: {call}" for call, code in codes.items() if code != FORBIDDEN] == []
    assert {call.resource for call in calls} >= NEVER
    print(f"{subject['name']}: {len(calls)} calls refused")


@pytest.mark.parametrize(("namespace", "name"), accounts())
def test_an_account_is_refused_all_that_its_roles_do_not_grant(server, token_of, namespace, name):
    assert_refused(server, token_of(namespace, name), account(namespace, name))


@pytest.mark.parametrize(("group", "role"), people(), ids=lambda each: each["name"])
def test_a_person_is_refused_all_that_the_role_of_its_group_does_not_grant(server, token_of, standing_in, group, role):
    """Nobody here is in a group of an identity provider, so an account that has the role alone stands in."""
    assert_refused(server, token_of(*standing_in(role)), group)
