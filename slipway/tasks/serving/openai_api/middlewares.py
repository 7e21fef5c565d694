"""What every request passes: the access log, and errors in the form of the client's API."""

import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPMethod, HTTPStatus

from aiohttp import web

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.serving.openai_api.answers.anthropic import error_document
from slipway.tasks.serving.openai_api.generation.generate import CLIENT_LEFT
from slipway.tasks.serving.openai_api.http.errors import ApiError, unavailable
from slipway.tasks.serving.openai_api.http.request_ids import is_anthropics, request_id
from slipway.tasks.serving.openai_api.requests.openai import BODY_BYTES

log = logging.getLogger(__name__)

CLIENTS_PATH = "/v1/"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The access log of clients' requests: a line for each, when its answer has ended."""
    began, status = time.perf_counter(), CLIENT_LEFT
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        path, seconds = request.rel_url.raw_path, time.perf_counter() - began
        if request.method != HTTPMethod.GET and path.startswith(CLIENTS_PATH):  # others are probes
            log.info("request %s: %s %s %d in %.3f s", request_id(request), request.method, path[:64], status, seconds)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer an error as the API that was called writes it."""
    try:
        return await handler(request)
    except ApiError as error:
        refused = error
    except InputError as error:
        refused = ApiError(str(error))
    except UnavailableError as error:
        refused = unavailable(str(error))
    except web.HTTPRequestEntityTooLarge:
        refused = ApiError(f"the request has more than {BODY_BYTES} bytes.", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except web.HTTPException as error:
        refused = ApiError(f"{request.method} {request.path[:64]}: {error.reason}.", status=error.status)
    except Exception:
        log.exception("request %s: unexpected error", request_id(request))
        refused = ApiError("unexpected error; see the log of the container.", status=HTTPStatus.INTERNAL_SERVER_ERROR)
    retry = {"Retry-After": str(refused.retry_after_s)} if refused.retry_after_s else None
    body = error_document(refused, request_id(request)) if is_anthropics(request) else refused.body
    return web.json_response(body, status=refused.status, headers=retry)
