"""The filter of the front that lets through who holds an API key, in Lua for Envoy's LuaJIT.

It reads the file of hashes again while Envoy runs, so a key is added or revoked without a restart. Why Lua:
docs/decisions/0047-api-keys-in-the-front.md.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from slipway.tasks.contracts import api_keys
from slipway.tasks.contracts.site.authentication import EVERY_OTHER, TokenIssuer
from slipway.tasks.serving.rendered import front_routes

FOLDER = "/run/keys"
"""Where the front's container has the Secret."""
VARIABLE = "SLIPWAY_KEYS"
"""Variable of the front's container that names the file of hashes."""
METADATA, CLIENT, LABEL = "slipway", "client", "label"
"""Where the filter leaves the name of the key for other filters and the access log, and what metrics call it."""
ACCESS_LOG = {
    "time": "%START_TIME%",
    "client": f"%DYNAMIC_METADATA({METADATA}:{CLIENT})%",
    "method": "%REQ(:METHOD)%",
    "path": "%PATH(NQ):128%",
    "status": "%RESPONSE_CODE%",
    "grpc_status": "%GRPC_STATUS%",
    "milliseconds": "%DURATION%",
}
"""A line of the front's log for each request with a key, and for each that was refused for want of one."""
COUNTER = {
    "name": "requests",
    "tags": [
        {"name": "client", "value_format": f"%DYNAMIC_METADATA({METADATA}:{LABEL})%"},
        {"name": "code", "value_format": ACCESS_LOG["status"]},
        {"name": "grpc_status", "value_format": ACCESS_LOG["grpc_status"]},
    ],
}
"""The same requests, counted: over HTTP and gRPC, whichever server answers."""
COUNTER_SCOPE = {"prefix": "slipway", "max_counters": 20 * api_keys.MOST_KEYS}
"""Names of keys and quotas are bounded, and statuses are few."""
TOKEN, JWKS, JWKS_CACHE = "token", "jwks", "300s"
CA_FILE = "/etc/ssl/certs/ca-certificates.crt"
"""Of Debian's images and of those without a distribution, Envoy's among them."""
ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
UNLIMITED_REQUESTS = 1_000_000_000
UNLIMITED = {"max_tokens": UNLIMITED_REQUESTS, "tokens_per_fill": UNLIMITED_REQUESTS, "fill_interval": "1s"}
"""The bucket of requests without a quota, which Envoy wants to have."""
OVER_QUOTA = "the key has used its requests a minute: ask again after the seconds of Retry-After"
NO_KEY = "no API key: send one in the header Authorization: Bearer or x-api-key"
WRONG_KEY = "Incorrect API key provided: it is unknown, has expired or was revoked"
HTTP_OPEN = ("/v2/health/live", "/v2/health/ready", "/health", "/ping")
GRPC_OPEN = (
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
)
"""Paths that need no key: what load balancers ask. The kubelet and Prometheus have ports of their own."""

_GUARD = """
local bit = require("bit")
local band, bnot, bor, bxor, ror, rshift, tobit = bit.band, bit.bnot, bit.bor, bit.bxor, bit.ror, bit.rshift, bit.tobit

-- SHA-256 of FIPS 180-4
local START = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}
local ROUND = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}
local LONGEST, LONGEST_NAME = 55, 63
local schedule = {}

local function add_block(words, block)
  for index = 1, 16 do
    local p, q, r, s = block:byte(index * 4 - 3, index * 4)
    schedule[index] = tobit(((p * 256 + q) * 256 + r) * 256 + s)
  end
  for index = 17, 64 do
    local x, y = schedule[index - 15], schedule[index - 2]
    schedule[index] = tobit(schedule[index - 16] + bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
      + schedule[index - 7] + bxor(ror(y, 17), ror(y, 19), rshift(y, 10)))
  end
  local a, b, c, d, e, f, g, h = unpack(words)
  for index = 1, 64 do
    local one = tobit(h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + bxor(band(e, f), band(bnot(e), g))
      + ROUND[index] + schedule[index])
    local two = tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + bxor(band(a, b), band(a, c), band(b, c)))
    a, b, c, d, e, f, g, h = tobit(one + two), a, b, c, tobit(d + one), e, f, g
  end
  local mixed = {a, b, c, d, e, f, g, h}
  for index = 1, 8 do
    words[index] = tobit(words[index] + mixed[index])
  end
end

local function sha256(text)
  local bits, words = #text * 8, {unpack(START)}
  local length = string.char(0, 0, 0, 0, rshift(bits, 24), band(rshift(bits, 16), 255), band(rshift(bits, 8), 255),
    band(bits, 255))
  local padded = text .. "\\128" .. ("\\0"):rep((55 - #text) % 64) .. length
  for first = 1, #padded, 64 do
    add_block(words, padded:sub(first, first + 63))
  end
  return words
end

local FILE = os.getenv("VARIABLE")
local TIME = "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$"
local keys, text, read_at = {}, "", 0

-- The lines that slipway/tasks/contracts/api_keys.py takes, and no others: what it does not list, it cannot revoke
local function fields(line)
  local name, hash, created, expires = line:match("^([a-z0-9][a-z0-9._-]*) ([0-9a-f]+) (%S+) (%S+)$")
  if name and #name <= LONGEST_NAME and name:find("[a-z0-9]$") and #hash == 64 and created:find(TIME)
    and (expires == "NEVER" or expires:find(TIME)) then
    return name, hash, expires
  end
end

local function parsed(lines)
  local found = {}
  for line in lines:gmatch("[^\\n]+") do
    local name, hash, expires = fields(line)
    if name and #found < MOST_KEYS then
      local words = {}
      for index = 1, 8 do
        words[index] = tobit(tonumber(hash:sub(index * 8 - 7, index * 8), 16))
      end
      found[#found + 1] = {name = name, words = words, expires = expires}
    end
  end
  return found
end

-- The kubelet swaps the whole folder of a Secret, so a file is never half written. No file is no keys
local function refresh(now)
  if now == read_at then
    return
  end
  read_at = now
  local file = io.open(FILE, "r")
  local lines = file and file:read("*a") or ""
  if file then
    file:close()
  end
  if lines ~= text then
    keys, text = parsed(lines), lines
  end
end

-- Every key is compared in full: the time tells nothing about a hash
local function client_of(secret)
  local now = os.time()
  refresh(now)
  local words, name = sha256(secret), nil
  for _, key in ipairs(keys) do
    local differs = 0
    for index = 1, 8 do
      differs = bor(differs, bxor(words[index], key.words[index]))
    end
    if differs == 0 and (key.expires == "NEVER" or key.expires > os.date("!%Y-%m-%dT%H:%M:%SZ", now)) then
      name = key.name
    end
  end
  return name
end

local OPEN = {OPEN_PATHS}

local function is_open(headers)
  return headers:get(":method") == "OPEN_METHOD" and OPEN[headers:get(":path"):match("^[^?]*")]
end

-- Envoy lets a request pass whose script fails, so a failure is no client
local function found_or_none(handle, find, given)
  local worked, name = pcall(find, given)
  if worked then
    return name
  end
  handle:logErr(name)
end

-- As slipway/tasks/contracts/api_keys.py names them. Other letters could break a line of a log or of metrics
local function subject_name(subject)
  local shown = subject:lower():gsub("[^a-z0-9._-]", "_"):sub(1, MOST_LETTERS)
  if shown ~= subject then
    local words = sha256(subject)
    shown = shown .. "~" .. (bit.tohex(words[1]) .. bit.tohex(words[2])):sub(1, DIGEST_DIGITS)
  end
  return "SUBJECT_PREFIX" .. shown
end

-- Of a token that Envoy has checked
local function token_subject(handle)
  local checked = handle:streamInfo():dynamicMetadata():get("envoy.filters.http.jwt_authn")
  local subject = checked and checked["TOKEN_FIELD"] and checked["TOKEN_FIELD"]["sub"]
  if type(subject) == "string" and subject ~= "" then
    return subject_name(subject)
  end
end

-- Metrics name keys, which a site makes, and subjects that have a quota of their own. An issuer may have any number
local QUOTA_OF = {QUOTA_SUBJECTS}

local function label_of(name)
  return name:sub(1, #"SUBJECT_PREFIX") ~= "SUBJECT_PREFIX" and name or QUOTA_OF[name] and name or "OTHER_SUBJECTS"
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local bearer = (headers:get("authorization") or ""):match("^[Bb][Ee][Aa][Rr][Ee][Rr] +(%S+)$")
  local secret = bearer or headers:get("x-api-key")
  headers:remove("authorization")
  headers:remove("x-api-key")
  headers:remove("CLIENT_HEADER")
  if is_open(headers) then
    return
  end
  local name = found_or_none(handle, token_subject, handle)
    or secret and #secret > 0 and #secret <= LONGEST and found_or_none(handle, client_of, secret)
  if not name then
    handle:respond({[":status"] = "401", ["www-authenticate"] = "Bearer"}, secret and "WRONG_KEY" or "NO_KEY")
    return
  end
  headers:add("CLIENT_HEADER", name)
  handle:streamInfo():dynamicMetadata():set("METADATA", "CLIENT_FIELD", name)
  handle:streamInfo():dynamicMetadata():set("METADATA", "LABEL_FIELD", label_of(name))
end

-- Clients of OpenAI and Anthropic wait as long as this header says
function envoy_on_response(handle)
  local headers = handle:headers()
  local wait = headers:get(":status") == "429" and headers:get("x-ratelimit-reset")
  if wait and not headers:get("retry-after") then
    headers:add("retry-after", wait)
  end
end
"""


def request_quotas(per_minute: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Envoy's filter that counts requests by the name of their key: a bucket for each name, which fills steadily.

    `per_minute` by name of keys; `*` is a bucket of its own for each other name.
    """
    client = {
        "descriptor_key": CLIENT,
        "metadata_key": {"key": METADATA, "path": [{"key": CLIENT}]},
        "source": "DYNAMIC",
    }
    return {
        "stat_prefix": "quota",
        "filter_enabled": ALWAYS,
        "filter_enforced": ALWAYS,
        "rate_limited_as_resource_exhausted": True,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "always_consume_default_token_bucket": False,
        "token_bucket": UNLIMITED,
        "rate_limits": [{"actions": [{"metadata": client}]}],
        "max_dynamic_descriptors": api_keys.MOST_KEYS,
        "descriptors": [
            {
                "entries": [{"key": CLIENT} if name == EVERY_OTHER else {"key": CLIENT, "value": name}],
                "token_bucket": {"max_tokens": number, "tokens_per_fill": number, "fill_interval": "60s"},
            }
            for name, number in per_minute
        ],
    }


def token_check(issuer: TokenIssuer) -> dict[str, Any]:
    """Envoy's filter that checks tokens. It refuses nothing: whoever has no token may have a key."""
    return {
        "providers": {
            "site": {
                "issuer": issuer.issuer,
                "audiences": list(issuer.audiences),
                "require_expiration": True,
                "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
                "payload_in_metadata": TOKEN,
                "remote_jwks": {
                    "http_uri": {"uri": issuer.jwks_uri, "cluster": JWKS, "timeout": "5s"},
                    "cache_duration": JWKS_CACHE,
                    "async_fetch": {"fast_listener": True},
                },
            }
        },
        "rules": [
            {
                "match": {"prefix": "/"},
                "requires": {
                    "requires_any": {"requirements": [{"provider_name": "site"}, {"allow_missing_or_failed": {}}]}
                },
            }
        ],
    }


def jwks_cluster(uri: str) -> dict[str, Any]:
    """Where Envoy fetches the issuer's keys.

    By default Envoy takes an address of IPv6 wherever there is one, also where only IPv4 leads out. Of all addresses of
    a logical cluster it tries one family after the other (Happy Eyeballs).
    """
    address = urlsplit(uri)
    host, is_tls = str(address.hostname), address.scheme == "https"
    socket = {"address": host, "port_value": address.port or (443 if is_tls else 80)}
    cluster: dict[str, Any] = {
        "name": JWKS,
        "type": "LOGICAL_DNS",
        "dns_lookup_family": "ALL",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": JWKS,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": socket}}}]}],
        },
    }
    if is_tls:
        names = [{"san_type": "DNS", "matcher": {"exact": host}}]
        trusted = {"trusted_ca": {"filename": CA_FILE}, "match_typed_subject_alt_names": names}
        cluster["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": host,
                "common_tls_context": {"validation_context": trusted},
            },
        }
    return cluster


def http_guard(quotas: Iterable[str]) -> str:
    """The filter of the HTTP port, by the names that have quotas of their own."""
    return _guard(HTTP_OPEN, "GET", quotas)


def grpc_guard(quotas: Iterable[str]) -> str:
    """The filter of the gRPC port. Envoy writes status 401 as UNAUTHENTICATED."""
    return _guard(GRPC_OPEN, "POST", quotas)


def _guard(paths: tuple[str, ...], method: str, quotas: Iterable[str]) -> str:
    subjects = [name for name in quotas if name.startswith(api_keys.SUBJECT_PREFIX)]
    values = {
        "QUOTA_SUBJECTS": _lua_set(subjects),
        "OTHER_SUBJECTS": api_keys.OTHER_SUBJECTS,
        "MOST_LETTERS": str(api_keys.MOST_LETTERS),
        "DIGEST_DIGITS": str(api_keys.DIGEST_DIGITS),
        "LABEL_FIELD": LABEL,
        "OPEN_PATHS": _lua_set(paths),
        "OPEN_METHOD": method,
        "VARIABLE": VARIABLE,
        "MOST_KEYS": str(api_keys.MOST_KEYS),
        "NEVER": api_keys.NEVER,
        "CLIENT_HEADER": api_keys.CLIENT_HEADER,
        "METADATA": METADATA,
        "TOKEN_FIELD": TOKEN,
        "SUBJECT_PREFIX": api_keys.SUBJECT_PREFIX,
        "CLIENT_FIELD": CLIENT,
        "NO_KEY": NO_KEY,
        "WRONG_KEY": WRONG_KEY,
    }
    return front_routes.filled(_GUARD, values)


def _lua_set(texts: Iterable[str]) -> str:
    return ", ".join(f'["{text}"] = true' for text in texts)
