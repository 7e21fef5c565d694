"""The Hub's HTTP API, with the documents and headers that huggingface_hub reads.

Written against huggingface_hub 1.21.0 and 2.4.0. No X-Xet headers are sent, so the clients download by plain HTTP.
As on the real Hub, everybody may list the files of a gated repository, but not read them
(https://github.com/huggingface/huggingface.js/issues/945).
"""

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from local.hub.faults import Fault, Faults
from local.hub.repositories import Repository, Revision, StoredFile, git_blob_id

CHUNK_BYTES = 256 * 1024
SLOW_CHUNKS_PER_S = 10
SENT_BYTES = web.RequestKey("sent_bytes", int)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HubError(Exception):
    """An error response with the two headers from which the client chooses its exception."""

    def __init__(self, status: int, code: str | None, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message, **(headers or {})}
        if code is not None:
            self.headers["X-Error-Code"] = code


class HubServer:
    """Serves `repositories`. Appends a JSON line per request to `access_log`, with no header but Range."""

    def __init__(
        self,
        repositories: Iterable[Repository],
        access_log: Path,
        admin_token: str,
        bytes_per_s: int | None = None,
    ) -> None:
        """`bytes_per_s` bounds what is sent of all files together."""
        self._repositories: dict[tuple[str, str], Repository] = {
            (repository.kind, repository.repo_id): repository for repository in repositories
        }
        self._access_log = access_log
        self._admin_token = admin_token
        self._faults = Faults()
        self._bytes_per_s, self._free_at = bytes_per_s, 0.0

    def application(self) -> web.Application:
        """Build the routes. More specific ones come first, because a repository's name may contain a slash."""
        app = web.Application(middlewares=[self._answer])
        api = "/api/{kind:models|datasets}/{repo:[^/]+(?:/[^/]+)?}"
        app.router.add_get(api + "/revision/{revision}", self._info)
        app.router.add_get(api + "/tree/{revision}", self._tree)
        app.router.add_get(api + "/tree/{revision}/{folder:.+}", self._tree)
        app.router.add_post(api + "/paths-info/{revision}", self._paths_info)
        app.router.add_get(api + "/refs", self._refs)
        app.router.add_get(api + "/auth-check", self._auth_check)
        app.router.add_get(api, self._info)
        file = "/{repo:[^/]+(?:/[^/]+)?}/resolve/{revision}/{file:.+}"
        app.router.add_get("/{kind:datasets}" + file, self._resolve)
        app.router.add_get(file, self._resolve)
        app.router.add_post("/_faults", self._add_fault)
        app.router.add_delete("/_faults", self._clear_faults)
        return app

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request[SENT_BYTES] = 0
        status = 500
        try:
            if "repo" in request.match_info and request.path.startswith("/api/"):
                _raise_status(self._faults.take(self._repository(request).url_name, "", "api"))
            response = await handler(request)
            status = response.status
            if isinstance(response, web.Response) and isinstance(response.body, bytes):
                request[SENT_BYTES] = len(response.body)
        except HubError as error:
            status = error.status
            return web.json_response({"error": str(error)}, status=error.status, headers=error.headers)
        except web.HTTPException as error:
            status = error.status
            raise
        else:
            return response
        finally:
            self._log(request, status)

    def _log(self, request: web.Request, status: int) -> None:
        line = {
            "time": round(time.time(), 3),
            "method": request.method,
            "path": request.path,
            "status": status,
            "bytes": request[SENT_BYTES],
            "range": request.headers.get("Range"),
        }
        with self._access_log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    def _repository(self, request: web.Request) -> Repository:
        kind, repo = request.match_info.get("kind", "models"), request.match_info["repo"]
        repository = self._repositories.get((kind, repo))
        if repository is None:  # the Hub does not tell strangers whether a private repository exists: 401, not 404
            raise HubError(404 if _token(request) else 401, "RepoNotFound", "Repository not found")
        return repository

    def _revision(self, request: web.Request) -> tuple[Repository, Revision]:
        repository = self._repository(request)
        name = request.match_info.get("revision", "main")
        revision = repository.revision(name)
        if revision is None:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {name!a}")
        return repository, revision

    def _require_access(self, request: web.Request, repository: Repository) -> None:
        if not repository.gated or _token(request) in repository.tokens:
            return
        message = f"Access to {repository.kind[:-1]} {repository.repo_id} is restricted"
        if _token(request) is None:
            raise HubError(401, "GatedRepo", f"{message}. You must have access to it and be authenticated.")
        raise HubError(403, "GatedRepo", f"{message} and you are not in the authorized list.")

    async def _info(self, request: web.Request) -> web.Response:
        repository, revision = self._revision(request)
        with_blobs = request.query.get("blobs", "").lower() in ("true", "1")
        return web.json_response(
            {
                "_id": revision.commit[:24],
                "id": repository.repo_id,
                "author": repository.repo_id.split("/")[0],
                "sha": revision.commit,
                "private": False,
                "gated": "manual" if repository.gated else False,
                "disabled": False,
                "tags": [],
                "siblings": [
                    {"rfilename": name, **(_blob(file, sha256_key="sha256", id_key="blobId") if with_blobs else {})}
                    for name, file in revision.files.items()
                ],
            }
        )

    async def _tree(self, request: web.Request) -> web.Response:
        _, revision = self._revision(request)
        folder = request.match_info.get("folder", "").strip("/")
        entries = _tree_entries(revision)
        if folder and entries.get(folder, {}).get("type") != "directory":
            raise HubError(404, "EntryNotFound", f"{folder!a} does not exist on this revision")
        below = {path: entry for path, entry in entries.items() if not folder or path.startswith(f"{folder}/")}
        if request.query.get("recursive", "").lower() not in ("true", "1"):
            depth = folder.count("/") + 1 if folder else 0
            below = {path: entry for path, entry in below.items() if path.count("/") == depth}
        return web.json_response(list(below.values()))

    async def _paths_info(self, request: web.Request) -> web.Response:
        _, revision = self._revision(request)
        entries = _tree_entries(revision)
        paths = [str(path).strip("/") for path in (await request.post()).getall("paths", [])]
        return web.json_response([entries[path] for path in paths if path in entries])

    async def _refs(self, request: web.Request) -> web.Response:
        repository = self._repository(request)
        answer: dict[str, list[dict[str, str]]] = {"converts": [], "pullRequests": []}
        for key, place, refs in (("branches", "heads", repository.branches), ("tags", "tags", repository.tags)):
            answer[key] = [
                {"name": name, "ref": f"refs/{place}/{name}", "targetCommit": commit} for name, commit in refs.items()
            ]
        return web.json_response(answer)

    async def _auth_check(self, request: web.Request) -> web.Response:
        self._require_access(request, self._repository(request))
        return web.json_response({})

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        repository = self._repository(request)
        self._require_access(request, repository)
        _, revision = self._revision(request)
        name = request.match_info["file"]
        headers = {"X-Repo-Commit": revision.commit, "Accept-Ranges": "bytes"}
        file = revision.files.get(name)
        if file is None:
            raise HubError(404, "EntryNotFound", "Entry not found", headers)
        is_head = request.method == "HEAD"
        fault = self._faults.take(repository.url_name, name, "head" if is_head else "get")
        _raise_status(fault)
        headers |= {"ETag": f'"{file.etag}"', "Content-Type": "application/octet-stream"}
        if file.lfs:
            headers |= {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": str(file.size_bytes)}
        span = range(file.size_bytes) if is_head else _requested_span(request, file.size_bytes)
        headers["Content-Length"] = str(len(span))
        is_part = not is_head and "Range" in request.headers
        if is_part:
            headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{file.size_bytes}"
        response = web.StreamResponse(status=206 if is_part else 200, headers=headers)
        await response.prepare(request)
        if not is_head:
            await _send(request, response, file, span, fault, self._wait_for_bandwidth)
        return response

    async def _wait_for_bandwidth(self, size_bytes: int) -> None:
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        starts_at = max(self._free_at, now)
        self._free_at = starts_at + size_bytes / self._bytes_per_s
        await asyncio.sleep(starts_at - now)

    async def _add_fault(self, request: web.Request) -> web.Response:
        self._require_admin(request)
        try:
            self._faults.add(Fault.model_validate_json(await request.read()))
        except ValidationError as error:
            raise HubError(400, None, f"{error.error_count()} wrong fields: {error.errors()[0]['msg']}") from error
        return web.Response(status=204)

    async def _clear_faults(self, request: web.Request) -> web.Response:
        self._require_admin(request)
        self._faults.clear()
        return web.Response(status=204)

    def _require_admin(self, request: web.Request) -> None:
        if not hmac.compare_digest((_token(request) or "").encode(), self._admin_token.encode()):
            raise HubError(401, None, "Faults need the admin token from server.json in the server's state folder")


def _token(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _raise_status(fault: Fault | None) -> None:
    if fault is not None and fault.kind == "status":
        raise HubError(fault.status, None, "Switched on at /_faults")


def _blob(file: StoredFile, *, sha256_key: str, id_key: str) -> dict[str, Any]:
    """Describe a file. The Hub's info and tree documents differ in the names of two keys."""
    blob: dict[str, Any] = {"size": file.size_bytes, id_key: file.blob_id}
    if file.lfs:
        blob["lfs"] = {sha256_key: file.lfs.sha256, "size": file.size_bytes, "pointerSize": file.lfs.size_bytes}
    return blob


def _tree_entries(revision: Revision) -> dict[str, dict[str, Any]]:
    """Every file and folder by path. A folder's id changes with its content, but it is not git's id."""
    entries: dict[str, dict[str, Any]] = {}
    folders: dict[str, str] = {}
    for path, file in revision.files.items():
        entries[path] = {"type": "file", "path": path, **_blob(file, sha256_key="oid", id_key="oid")}
        for parent in Path(path).parents[:-1]:
            folders[str(parent)] = folders.get(str(parent), "") + f"{file.etag} {path}\n"
    for path, listing in folders.items():
        entries[path] = {"type": "directory", "path": path, "size": 0, "oid": git_blob_id(listing.encode())}
    return dict(sorted(entries.items()))


def _requested_span(request: web.Request, size_bytes: int) -> range:
    """Offsets of the body; the whole file if the request has no Range (RFC 9110 section 14)."""
    try:
        requested_range = request.http_range
    except ValueError as error:
        raise HubError(400, None, f"Cannot read Range: {request.headers['Range'][:64]!a}") from error
    span = range(size_bytes)[requested_range]
    if "Range" in request.headers and not span:
        raise HubError(416, None, "Range not satisfiable", {"Content-Range": f"bytes */{size_bytes}"})
    return span


async def _send(
    request: web.Request,
    response: web.StreamResponse,
    file: StoredFile,
    span: range,
    fault: Fault | None,
    wait_for_bandwidth: Callable[[int], Awaitable[None]],
) -> None:
    end, chunk_bytes, pause_s = span.stop, CHUNK_BYTES, 0.0
    if fault is not None and fault.kind == "cut":
        end = min(end, span.start + fault.after_bytes)
    if fault is not None and fault.kind == "slow":
        chunk_bytes = min(CHUNK_BYTES, max(1, fault.bytes_per_s // SLOW_CHUNKS_PER_S))
        pause_s = chunk_bytes / fault.bytes_per_s
    with file.source.open("rb") as stream:
        stream.seek(span.start)
        for offset in range(span.start, end, chunk_bytes):
            chunk = await asyncio.to_thread(stream.read, min(chunk_bytes, end - offset))
            if fault is not None and fault.kind == "corrupt":
                chunk = _corrupted(chunk, min(fault.after_bytes, file.size_bytes - 1) - offset)
            await wait_for_bandwidth(len(chunk))
            await response.write(chunk)
            request[SENT_BYTES] += len(chunk)
            await asyncio.sleep(pause_s)
    if end < span.stop and request.transport is not None:
        response.force_close()
        request.transport.close()  # an orderly close: the client sees a body shorter than Content-Length


def _corrupted(chunk: bytes, position: int) -> bytes:
    if not 0 <= position < len(chunk):
        return chunk
    return chunk[:position] + bytes([chunk[position] ^ 0xFF]) + chunk[position + 1 :]
