"""What a pod's front lets through: the routes and methods of Triton that clients need, and how large a request may be.

Everything else is refused, whatever a later Triton adds: shared memory, logging, tracing and the loading of models are
for its administrator. Sources: src/http_server.cc and src/grpc/grpc_server.cc of triton-inference-server/server.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec

_MODEL = "/v2/models/[A-Za-z0-9][A-Za-z0-9._-]*(/versions/[0-9]+)?"
HTTP_ROUTES = (
    ("GET", "/v2|/v2/health/(live|ready)|/v2/models/stats"),
    ("GET", f"{_MODEL}(/(ready|config|stats))?"),
    ("POST", f"{_MODEL}/(infer|generate|generate_stream)"),
)
"""Method and pattern of the whole path, without its query."""
GRPC_METHODS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
    "ModelInfer",
    "ModelStreamInfer",
)
GRPC_PATHS = (*(f"/inference.GRPCInferenceService/{name}" for name in GRPC_METHODS), "/grpc.health.v1.Health/Check")

BASE_BYTES, OPENAI_BASE_BYTES = 256 << 10, 1 << 20
"""Room for what is not the prompt: parameters, a JSON schema; for OpenAI's API also tools and the messages' JSON."""
BYTES_PER_TOKEN = 64
"""Bytes of a request for each token of the longest prompt. Text has 3 to 5 bytes a token, and code up to 20; JSON
escapes make at most 6 of each."""
OPENAI_MOST_BYTES = 16 << 20
"""The API's own limit (slipway/tasks/serving/openai_api)."""
COPIES = 5
"""Times that Triton and its Python backend hold a request at once: as received, parsed, as a tensor, in shared memory
and as the model's own string."""
SHARE = 2
"""The part of a server's memory that requests may take is one in this many, once renderers have theirs."""
RENDERERS_BYTES = 4 * (24 + 64) << 20
"""What the processes that render a model's chat template, and translate schemas, may take: 24 MiB for the program, and
the budget of each (model_repository_templates/shared/generation/workers/preparers.py)."""

TRITON_CANNOT_READ = (
    "failed to parse the request JSON buffer",
    "Unable to parse",
    "attempt to access ",
    "attempt to get members ",
    "Unable to set",
    "failed to get request params",
    "Expected JSON object for keyword",
    "Converting keyword",
    "parameter key ",
)
"""Beginnings of the messages with which Triton refuses a body that it cannot read, and answers 500. Sources:
include/triton/common/triton_json.h of triton-inference-server/common at 83adf7cf; src/http_server.cc of the server at
e1db8a60: what each RETURN_MSG_IF_ERR begins with, and a parameter whose name has a NUL."""
NOT_UTF_8 = "the request's JSON is not UTF-8: send UTF-8"
NO_CLASSES = "no output has classes: leave the parameter out that asks for the likeliest ones"
"""Triton divides by the bytes of an element where an output is to be classified; a text has 0, and the server ends
(2.51; src/classification.cc refuses it at e1db8a60)."""
LEADS = (
    (0xC2, 0xDF, 1, 0x80, 0xBF),
    (0xE0, 0xE0, 2, 0xA0, 0xBF),
    (0xE1, 0xEC, 2, 0x80, 0xBF),
    (0xED, 0xED, 2, 0x80, 0x9F),
    (0xEE, 0xEF, 2, 0x80, 0xBF),
    (0xF0, 0xF0, 3, 0x90, 0xBF),
    (0xF1, 0xF3, 3, 0x80, 0xBF),
    (0xF4, 0xF4, 3, 0x80, 0x8F),
)
"""First bytes of characters beyond ASCII, from and to; how many follow; from where to where the second one goes. Others
are 0x80 to 0xBF (The Unicode Standard 15, table 3-7)."""

_JSON_GUARD = """
-- Triton does not look whether a body's JSON is UTF-8, and answers with texts of it: the id, names in errors
local FOLLOW, LOW, HIGH = {}, {}, {}
for _, lead in ipairs({LEADS}) do
  for byte = lead[1], lead[2] do
    FOLLOW[byte], LOW[byte], HIGH[byte] = lead[3], lead[4], lead[5]
  end
end
local PIECE = 65536

function envoy_on_request(handle)
  local path = handle:headers():get(":path")
  local body = path:find("^/v2/") and handle:body()
  if not body then
    return
  end
  local length = body:length()
  if path:match("^[^?]*"):find("/infer$") then  -- tensors in binary may follow
    -- digits alone: of "100e-2" Lua makes 1, and Triton 100
    local told = (handle:headers():get("inference-header-content-length") or ""):match("^%d+$")
    length = math.min(length, tonumber(told or length))
    local letters = body:getBytes(0, length):gsub("\\\\u00([67]%x)", function(code)
      return string.char(tonumber(code, 16))
    end)
    if letters:find('"classification"%s*:') then
      return handle:respond({[":status"] = "400"}, "NO_CLASSES")
    end
  end
  local follow, low, high, wrong = 0, 0x80, 0xBF, false
  for at = 0, length - 1, PIECE do
    local piece = body:getBytes(at, math.min(PIECE, length - at))
    if follow > 0 or piece:find("[\\128-\\255]") then
      for index = 1, #piece do
        local byte = piece:byte(index)
        if follow > 0 then
          wrong = wrong or byte < low or byte > high
          follow, low, high = follow - 1, 0x80, 0xBF
        elseif byte > 0x7F then
          wrong = wrong or not FOLLOW[byte]
          follow, low, high = FOLLOW[byte] or 0, LOW[byte] or 0, HIGH[byte] or 0
        end
      end
    end
  end
  if wrong or follow > 0 then
    handle:respond({[":status"] = "400"}, "NOT_UTF_8")
  end
end

-- A body that Triton cannot read is its client's mistake: 400 instead of 500. Other answers are not looked into
function envoy_on_response(handle)
  local headers = handle:headers()
  if headers:get(":status") == "503" and not headers:get("retry-after") then  -- no room for it now
    headers:add("retry-after", "1")
  end
  if headers:get(":status") ~= "500" then
    return
  end
  local body = handle:body()
  local text = body and body:getBytes(0, math.min(body:length(), 256)) or ""
  for _, start in ipairs({STARTS}) do
    if text:find('^{"error":%s*"' .. start) then
      handle:headers():replace(":status", "400")  -- those from before the wait for the body are gone
    end
  end
end
"""

ONE_REQUEST = "a stream takes one request: open another stream for the next one"

_GRPC_GUARD = """
-- A gRPC message starts with 5 bytes: whether it is compressed, and its length. One that is too long, compressed or the
-- second of a stream becomes the start of a message of 4 GiB, which Triton's gRPC refuses; the rest is dropped.
-- Two requests at once on a stream end Triton: it writes an error beside an answer (Triton 2.51; server issue 7472).
local function refuse(handle, status, message)
  handle:streamInfo():dynamicMetadata():set("slipway", "refusal", {status = status, message = message})
end

local function tell(handle, answer)
  local noted = handle:streamInfo():dynamicMetadata():get("slipway")
  if answer and noted and noted["refusal"] then
    answer:replace("grpc-status", noted["refusal"]["status"])
    answer:replace("grpc-message", noted["refusal"]["message"])
  end
end

-- Triton calls such a stream ended, or an internal error
function envoy_on_response(handle)
  if handle:headers():get("grpc-status") then
    tell(handle, handle:headers())
  else
    tell(handle, handle:trailers())
  end
end

-- The name of a parameter follows its length, 14, which may be written in more bytes than it needs
local CLASSES = {"()(\\14classificatio)n", "()(\\142\\128*%zclassificatio)n"}
-- The model's name may be that word too: after 5 bytes and its tag comes its length. So may an id and a parameter's
-- text, field 3 of their messages, and an element of bytes_contents, field 8: no tag of a name, field 1, ends so
local MODEL, TEXTS = 7, {[26] = true, [66] = true}

local function without_classes(handle, chunk, before, passed)
  local text, found = before .. chunk:getBytes(0, chunk:length()), false
  for _, name in ipairs(CLASSES) do
    text = text:gsub(name, function(at, start)
      local is_new = at + #start > #before
      if is_new and passed - #before + at ~= MODEL and not TEXTS[text:byte(at - 1)] then
        found = true
        return start .. "_"
      end
    end)
  end
  if found then
    chunk:setBytes(text:sub(#before + 1))
    refuse(handle, "3", "NO_CLASSES")
  end
  return text:sub(-32), passed + chunk:length()
end

function envoy_on_request(handle)
  local left, start, refused, messages, before, passed = 0, "", false, 0, "", 0
  for chunk in handle:bodyChunks() do
    if refused then
      chunk:setBytes("")
    else
      before, passed = without_classes(handle, chunk, before, passed)
      if start ~= "" then
        chunk:setBytes(start .. chunk:getBytes(0, chunk:length()))
        start = ""
      end
      local length, at = chunk:length(), 0
      while at < length and not refused do
        if left > 0 then
          local step = math.min(left, length - at)
          left, at = left - step, at + step
        elseif length - at < 5 then
          start = chunk:getBytes(at, length - at)
          chunk:setBytes(at > 0 and chunk:getBytes(0, at) or "")
          break
        else
          local packed, a, b, c, d = chunk:getBytes(at, 5):byte(1, 5)
          left, at, messages = ((a * 256 + b) * 256 + c) * 256 + d, at + 5, messages + 1
          if packed ~= 0 or left > LIMIT or messages > 1 then
            chunk:setBytes((at > 5 and chunk:getBytes(0, at - 5) or "") .. string.char(0, 255, 255, 255, 255))
            refused = true
            refuse(handle, messages > 1 and "9" or "8", messages > 1 and "ONE_REQUEST" or "TOO_LARGE")
          end
        end
      end
    end
  end
end
"""


@dataclass(frozen=True)
class Limits:
    """What a pod's servers take."""

    body_bytes: int
    """The largest HTTP request body, and the largest gRPC message, to Triton."""
    openai_bytes: int
    """The largest request body to OpenAI's API."""
    requests: int
    """The most requests in flight, for each of HTTP, gRPC and OpenAI's API."""
    batch: int = 1
    """Requests that the server's models answer at once."""


def limits_of(specs: Iterable[ReleaseSpec], memory_bytes: int) -> Limits:
    """Limits of a server of these models that has so much memory.

    Raises:
        InputError: the memory cannot hold a batch of the largest requests.
    """
    engines = [spec.engine for spec in specs]
    renderers_bytes = len(engines) * RENDERERS_BYTES
    prompt_bytes = BYTES_PER_TOKEN * max(engine.max_input_tokens for engine in engines)
    body_bytes, batch = BASE_BYTES + prompt_bytes, sum(engine.max_batch_size for engine in engines)
    requests = (memory_bytes - renderers_bytes) // SHARE // (COPIES * body_bytes)
    if requests < batch:
        least_bytes = renderers_bytes + batch * SHARE * COPIES * body_bytes
        raise InputError(
            "the server's memory cannot hold a batch of the longest prompts",
            found=f"{memory_bytes >> 20} MiB",
            expected=f"at least {(least_bytes >> 20) + 1} MiB: {renderers_bytes >> 20} MiB for chat templates, and "
            f"half of the rest for {batch} requests of {body_bytes >> 10} KiB, each held {COPIES} times",
            remedy="Give the shape more memory, or lower engine.max_batch_size or engine.max_input_tokens.",
        )
    return Limits(body_bytes, min(OPENAI_BASE_BYTES + prompt_bytes, OPENAI_MOST_BYTES), requests, batch)


def grpc_guard(most_bytes: int, too_large: str) -> str:
    """Envoy's filter in Lua that refuses gRPC messages beyond a size, and all but the first of a stream.

    `buffer` would wait for the end of a stream.
    """
    return filled(
        _GRPC_GUARD,
        {"LIMIT": str(most_bytes), "TOO_LARGE": too_large, "ONE_REQUEST": ONE_REQUEST, "NO_CLASSES": NO_CLASSES},
    )


def json_guard() -> str:
    """Envoy's filter in Lua for JSON of clients that Triton's HTTP server does not check, or cannot read."""
    leads = ", ".join(f"{{{', '.join(map(str, lead))}}}" for lead in LEADS)
    starts = ", ".join(f'"{start}"' for start in TRITON_CANNOT_READ)
    return filled(_JSON_GUARD, {"LEADS": leads, "STARTS": starts, "NOT_UTF_8": NOT_UTF_8, "NO_CLASSES": NO_CLASSES})


def filled(script: str, values: dict[str, str]) -> str:
    """A script with values in place of their names."""
    return re.sub("|".join(values), lambda match: values[match[0]], script)
