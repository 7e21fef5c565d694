"""Create, update, patch and delete with the rules of the API server around the store."""

import copy
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..addresses import AddressError, Addresses
from ..control.garbage import Deletion
from ..network.proxy import check_ports
from ..objects import patches
from ..objects.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES, Object, Resource
from ..objects.status import bad_request, conflict, forbidden, invalid, not_found
from ..objects.store import Store, now
from ..rules import admission, defaults, limit_ranges, pod_security, quotas

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
SYSTEM_NAMESPACES = ("default", "kube-system")


@dataclass(frozen=True)
class Objects:
    """Changes objects, for both the API and the controllers."""

    store: Store
    deletion: Deletion
    addresses: Addresses
    node: str
    """Name of the cluster's one node."""

    def add_system_namespaces(self) -> None:
        """Create the namespaces that every cluster has."""
        for name in SYSTEM_NAMESPACES:
            if self.store.get(NAMESPACES, "", name) is None:
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                self.create(NAMESPACES, "", body)

    def create_pod(self, pod: Object) -> Object:
        """Admit and store a controller's pod.

        Raises:
            ApiError: as `create`.
        """
        return self.create(PODS, pod["metadata"]["namespace"], pod)

    def create(self, resource: Resource, namespace: str, body: Object, *, dry_run: bool = False) -> Object:
        """Admit and store an object.

        Raises:
            ApiError: 400 malformed, 403 or 404 for the namespace, 409 exists, 422 refused.
        """
        item = _addressed(resource, namespace, body)
        meta = item["metadata"]
        if not meta.get("name") and meta.get("generateName"):
            suffix = "".join(secrets.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))
            meta["name"] = f"{meta['generateName'][: 63 - SUFFIX_LENGTH]}{suffix}"
        if not meta.get("name"):
            raise invalid(resource, "", [("metadata.name", "Required value: name or generateName is required")])
        self._check_place(resource, namespace, item)
        for field in ("resourceVersion", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(field, None)
        if resource.has_status:
            item.pop("status", None)
        self._complete(resource, item)
        self._admit(resource, item)
        if dry_run:
            return item | {"metadata": meta | {"uid": "", "creationTimestamp": now()}}
        created = self.store.create(resource, item)
        if resource is NAMESPACES:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self.create(SERVICE_ACCOUNTS, meta["name"], account)
        return created

    def update(
        self, resource: Resource, namespace: str, body: Object, *, part: str = "", dry_run: bool = False
    ) -> Object:
        """Replace an object, or its status when `part` is "status".

        Raises:
            ApiError: 400 malformed, 404, 409 another version is stored, 422 refused.
        """
        item = _addressed(resource, namespace, body)
        old = self.store.need(resource, namespace, item["metadata"].get("name", ""))
        if part == "status":
            item = old | {"status": item.get("status") or {}, "metadata": _with_version(old, item)}
        else:
            if "status" in old:
                item["status"] = old["status"]
            for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
                item["metadata"].pop(field, None)
                if field in old["metadata"]:
                    item["metadata"][field] = old["metadata"][field]
            self._keep_assigned(resource, old, item)
            self._complete(resource, item)
            admission.check_update(resource, old, item, self.node)
            if resource is SERVICES and item["spec"].get("ports") != old["spec"].get("ports"):
                self._check_ports(item)
        if dry_run:
            return item
        stored = self.store.update(resource, item)
        self.deletion.finish(resource, stored)
        return stored

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        content_type: str,
        patch: Any,
        *,
        part: str = "",
        dry_run: bool = False,
    ) -> tuple[Object, bool]:
        """Patch an object; server-side apply creates one that is missing. The second value says whether it did.

        Raises:
            ApiError: as `update`, and 415 for an unknown kind of patch.
        """
        old = self.store.get(resource, namespace, name)
        if old is None:
            if content_type != patches.APPLY:
                raise not_found(resource, name)
            body = patch | {"metadata": (patch.get("metadata") or {}) | {"name": name}}
            return self.create(resource, namespace, body, dry_run=dry_run), True
        patched = patches.apply(content_type, old, patch)
        if not isinstance(patched, dict) or patched.get("metadata", {}).get("name") != name:
            raise bad_request(f"the patch removes the name or the body of {resource.qualified} {name!r}")
        return self.update(resource, namespace, patched, part=part, dry_run=dry_run), False

    def delete(self, resource: Resource, item: Object, options: Mapping[str, Any]) -> Object:
        """Delete an object as its DeleteOptions specify.

        Raises:
            ApiError: 409, a precondition does not hold; 403, the namespace may not be deleted.
        """
        meta = item["metadata"]
        for field, wanted in (options.get("preconditions") or {}).items():
            if wanted is not None and meta.get(field) != wanted:
                why = f"Precondition failed: {field} in precondition: {wanted}, in object meta: {meta.get(field)}"
                raise conflict(resource, meta["name"], why)
        if resource is NAMESPACES and meta["name"] in SYSTEM_NAMESPACES:
            raise forbidden(resource, meta["name"], "this namespace may not be deleted")
        if options.get("dryRun"):
            return item
        policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
        return self.deletion.delete(resource, item, options.get("gracePeriodSeconds"), policy)

    def _check_place(self, resource: Resource, namespace: str, item: Object) -> None:
        if not resource.namespaced:
            return
        namespace_object = self.store.get(NAMESPACES, "", namespace)
        if namespace_object is None:
            raise not_found(NAMESPACES, namespace)
        name = item["metadata"]["name"]
        if "deletionTimestamp" in namespace_object["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(resource, name, why)
        if resource is PODS:
            spec = item.get("spec") or {}
            account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
            if self.store.get(SERVICE_ACCOUNTS, namespace, account) is None:
                why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
                raise forbidden(resource, name, why)

    def _admit(self, resource: Resource, item: Object) -> None:
        """The admission of a new object, in the order of the API server: defaults, validity, policies, quotas."""
        if resource is PODS:
            limit_ranges.fill(self.store, item)
        admission.check(resource, item, self.node)
        if resource is PODS:
            limit_ranges.check(self.store, item)
            pod_security.check(self.store, item)
        if resource is SERVICES:
            self._give_address(item)
        quotas.check(self.store, resource, item)

    def _complete(self, resource: Resource, item: Object) -> None:
        try:
            defaults.fill(resource, item)
        except (KeyError, TypeError, AttributeError) as error:
            raise bad_request(f"{resource.kind} cannot be handled: missing or malformed field {error}") from error

    def _keep_assigned(self, resource: Resource, old: Object, item: Object) -> None:
        if resource is SERVICES:
            for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                if field in old["spec"]:
                    item["spec"].setdefault(field, old["spec"][field])

    def _give_address(self, service: Object) -> None:
        spec, name = service["spec"], service["metadata"]["name"]
        if spec["type"] == "ExternalName" or spec.get("clusterIP") == "None":
            return
        taken = {other["spec"].get("clusterIP") for other in self.store.all(SERVICES)}
        requested = spec.get("clusterIP")
        if requested and (requested in taken or not requested.startswith(self.addresses.service_range)):
            text = f'Invalid value: "{requested}": taken, or not in {self.addresses.service_range}0.0/16'
            raise invalid(SERVICES, name, [("spec.clusterIPs", text)])
        try:
            address = requested or self.addresses.service(taken.__contains__)
        except AddressError as error:
            raise invalid(SERVICES, name, [("spec.clusterIPs", str(error))]) from error
        spec |= {"clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"]}
        spec |= {"ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"}
        self._check_ports(service)

    def _check_ports(self, service: Object) -> None:
        if service["spec"].get("clusterIP", "None") != "None":
            check_ports(service)


def _addressed(resource: Resource, namespace: str, body: Object) -> Object:
    """A copy of `body` with its kind and namespace filled in."""
    for field, wanted in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if body.get(field, wanted) != wanted:
            raise bad_request(f"the body's {field} is {body[field]!r}, this URL expects {wanted!r}")
    item = copy.deepcopy(body) | {"kind": resource.kind, "apiVersion": resource.api_version}
    meta = item.get("metadata") or {}
    if not isinstance(meta, dict):
        raise bad_request("metadata is not an object")
    if resource.namespaced:
        if meta.get("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request "
                f"({meta['namespace']!r}, {namespace!r})"
            )
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)
    item["metadata"] = meta
    return {"apiVersion": item.pop("apiVersion"), "kind": item.pop("kind"), **item}


def _with_version(old: Object, item: Object) -> dict[str, Any]:
    given = item["metadata"].get("resourceVersion")
    meta: dict[str, Any] = old["metadata"]
    return meta | ({"resourceVersion": given} if given else {})
