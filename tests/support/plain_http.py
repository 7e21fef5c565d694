"""httpx's functions for servers without TLS. httpx itself reads the machine's certificates for each call, which takes 20 ms of CPU."""

import functools
import ssl

import httpx

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

get, post, put, delete, request, stream = (
    functools.partial(function, verify=NO_CERTIFICATES)
    for function in (httpx.get, httpx.post, httpx.put, httpx.delete, httpx.request, httpx.stream)
)
