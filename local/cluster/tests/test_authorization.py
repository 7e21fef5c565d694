"""What the roles bound to a user permit, as in Kubernetes' RBAC."""

import pytest
from kubernetes import client

RBAC = "rbac.authorization.k8s.io"


class Account:
    """A service account of a namespace, and requests with its token."""

    def __init__(self, space, name):
        self.space, self.name = space, name
        self.subject = {"kind": "ServiceAccount", "name": name, "namespace": space.name}
        self.user = f"system:serviceaccount:{space.name}:{name}"
        self.rbac = client.RbacAuthorizationV1Api(space.cluster.api_client)
        space.core.create_namespaced_service_account(space.name, {"metadata": {"name": name}})
        self.token = self.request_token()

    def request_token(self, **spec):
        request = {"spec": {"audiences": [], **spec}}
        core = self.space.core
        return core.create_namespaced_service_account_token(self.name, self.space.name, request).status.token

    def may(self, *rules, role="Role", cluster_wide=False, **subject):
        """Bind new roles with `rules`, to this account or another subject."""
        name, place = f"{self.space.name}-{self.name}", self.space.name
        meta, subjects = {"metadata": {"name": name}}, [subject or self.subject]
        if role == "Role":
            self.rbac.create_namespaced_role(place, meta | {"rules": list(rules)})
        else:
            self.rbac.create_cluster_role(meta | {"rules": list(rules)})
        binding = meta | {"subjects": subjects, "roleRef": {"apiGroup": RBAC, "kind": role, "name": name}}
        if cluster_wide:
            self.rbac.create_cluster_role_binding(binding)
        else:
            self.rbac.create_namespaced_role_binding(place, binding)

    def ask(self, path, method="GET", body=None, **options):
        return self.space.cluster.ask(
            f"/api/v1/namespaces/{self.space.name}/{path}", method, body, token=self.token, **options
        )

    def code(self, *request, **options):
        return self.ask(*request, **options)[0]


@pytest.fixture
def account(space):
    return Account(space, "worker")


def rule(resources, verbs, group="", **more):
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **more}


def config_map(name, **more):
    return {"metadata": {"name": name, **more}}


def test_nothing_is_allowed_without_a_role_and_the_answer_names_user_verb_resource_and_place(account, space):
    code, status = account.ask("pods/demo")

    assert (code, status["reason"], status["details"]) == (403, "Forbidden", {"name": "demo", "kind": "pods"})
    assert status["message"] == (
        f'pods "demo" is forbidden: User "{account.user}" cannot get resource "pods" in API group "" '
        f'in the namespace "{space.name}"'
    )


def test_a_denial_names_group_and_subresource(account, space):
    path = f"/apis/apps/v1/namespaces/{space.name}/deployments/demo/scale"

    _, status = space.cluster.ask(path, "PATCH", {}, token=account.token)

    assert status["details"] == {"name": "demo", "group": "apps", "kind": "deployments"}
    assert status["message"] == (
        f'deployments.apps "demo" is forbidden: User "{account.user}" cannot patch resource "deployments/scale" '
        f'in API group "apps" in the namespace "{space.name}"'
    )


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", "configmaps", "list"),
        ("GET", "configmaps?watch=1&timeoutSeconds=0.1", "watch"),
        ("GET", "configmaps/one", "get"),
        ("POST", "configmaps", "create"),
        ("PUT", "configmaps/one", "update"),
        ("PATCH", "configmaps/one", "patch"),
        ("DELETE", "configmaps/one", "delete"),
        ("DELETE", "configmaps", "deletecollection"),
    ],
)
def test_each_verb_is_allowed_by_itself_alone(account, space, method, path, verb):
    space.core.create_namespaced_config_map(space.name, config_map("one"))
    body = {"GET": None, "DELETE": None, "POST": config_map("two")}.get(method, config_map("one"))
    options = {"content_type": "application/merge-patch+json"} if method == "PATCH" else {}
    every = {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
    account.may(rule("configmaps", " ".join(every - {verb})))
    denied = account.code(path, method, body, **options)
    account.rbac.patch_namespaced_role(f"{space.name}-worker", space.name, {"rules": [rule("configmaps", verb)]})

    assert (denied, account.code(path, method, body, **options) < 300) == (403, True)


def test_a_role_holds_in_its_namespace_alone(account, space_in, cluster):
    other = space_in(cluster, "elsewhere")
    account.may(rule("configmaps", "list"))

    code, _ = cluster.ask(f"/api/v1/namespaces/{other.name}/configmaps", token=account.token)
    everywhere, _ = cluster.ask("/api/v1/configmaps", token=account.token)
    cluster.core.delete_namespace(other.name)

    assert (account.code("configmaps"), code, everywhere) == (200, 403, 403)


def test_a_cluster_role_bound_in_a_namespace_holds_there_and_bound_to_the_cluster_everywhere(account, space):
    account.may(rule("nodes configmaps", "list"), role="ClusterRole")
    second = Account(space, "second")
    second.may(rule("nodes configmaps", "list"), role="ClusterRole", cluster_wide=True)

    def nodes(one):
        return space.cluster.ask("/api/v1/nodes", token=one.token)[0]

    assert (account.code("configmaps"), nodes(account)) == (200, 403)
    assert (second.code("configmaps"), nodes(second)) == (200, 200)


def test_names_of_a_rule_hold_for_those_objects_and_never_for_a_creation(account, space):
    for name in ("one", "two"):
        space.core.create_namespaced_config_map(space.name, config_map(name))
    account.may(rule("configmaps", "get list create", resourceNames=["one", "new"]))

    codes = [account.code(path) for path in ("configmaps/one", "configmaps/two", "configmaps")]
    selected = account.code("configmaps?fieldSelector=metadata.name%3Done")

    assert (codes, selected) == ([200, 403, 403], 200)
    assert account.code("configmaps", "POST", config_map("new")) == 403


def test_a_subresource_is_a_resource_of_its_own(account, space):
    space.run("talks", "print('hello')")
    space.finished("talks")
    account.may(rule("pods", "get"))
    without = account.code("pods/talks/log")
    second = Account(space, "second")
    second.may(rule("pods/log", "get"))

    assert (account.code("pods/talks"), without) == (200, 403)
    assert (second.code("pods/talks"), second.code("pods/talks/log")) == (403, 200)


@pytest.mark.parametrize("part", ["exec", "attach", "portforward"])
def test_connecting_to_a_pod_over_a_get_needs_create_too(account, space, part):
    space.run("talks", "print('hello')")
    account.may(rule(f"pods/{part}", "get"))
    second = Account(space, "second")
    second.may(rule(f"pods/{part}", "get create"))

    code, status = account.ask(f"pods/talks/{part}")

    assert (code, f'cannot create resource "pods/{part}"' in status["message"]) == (403, True)
    assert second.code(f"pods/talks/{part}") != 403


def test_server_side_apply_of_something_new_needs_create(account, space):
    account.may(rule("configmaps", "patch"))
    body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("one")}
    apply = {"content_type": "application/apply-patch+yaml"}

    code, status = account.ask("configmaps/one?fieldManager=test", "PATCH", body, **apply)
    space.core.create_namespaced_config_map(space.name, config_map("one"))

    assert (code, 'cannot create resource "configmaps"' in status["message"]) == (403, True)
    assert account.code("configmaps/one?fieldManager=test", "PATCH", body, **apply) == 200


@pytest.mark.parametrize("group", ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:{}"])
def test_a_role_may_be_bound_to_a_group_of_accounts(account, space, group):
    account.may(rule("configmaps", "list"), kind="Group", apiGroup=RBAC, name=group.format(space.name))

    assert account.code("configmaps") == 200


def test_everyone_with_a_token_may_discover_and_nobody_may_stop_the_server_but_the_administrator(account, cluster):
    discovered = [cluster.ask(path, token=account.token)[0] for path in ("/api", "/apis/apps/v1", "/openapi/v3")]
    code, status = cluster.ask("/-/stop", "POST", token=account.token)

    assert discovered == [200, 200, 200]
    assert (code, status["message"]) == (403, f'forbidden: User "{account.user}" cannot post path "/-/stop"')


def test_what_does_not_exist_is_hidden_from_those_who_may_not_see_it(account, cluster):
    assert [account.code(path) for path in ("pods/none", "unknown/none")] == [403, 403]
    assert cluster.ask("/api/v1/unknown/none")[0] == 404


def test_a_token_shorter_than_ten_minutes_is_refused(account):
    with pytest.raises(client.ApiException) as refused:
        account.request_token(expirationSeconds=60)

    assert (refused.value.status, "may not specify a duration less than 10 minutes" in refused.value.body) == (
        422,
        True,
    )


def test_a_token_for_another_audience_is_not_valid_here(account, cluster):
    assert cluster.ask("/api", token=account.request_token(audiences=["elsewhere"]))[0] == 401


def test_a_token_ends_with_its_account_even_if_one_of_the_same_name_follows(account, space, cluster):
    space.core.delete_namespaced_service_account("worker", space.name)
    gone = cluster.ask("/api", token=account.token)[0]
    again = Account(space, "worker")

    assert (gone, cluster.ask("/api", token=account.token)[0]) == (401, 401)
    assert cluster.ask("/api", token=again.token)[0] == 200
