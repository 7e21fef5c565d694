"""httpx for servers without TLS, with a timeout of PATIENCE_S: a busy machine may delay an answer by more than httpx's own 5 s.

httpx itself reads the machine's certificates for each call and each client, which takes 20 ms of CPU.
"""

import functools
import ssl

import httpx

from tests.support.waiting import PATIENCE_S

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

get, post, put, delete, request, stream, options, client = (
    functools.partial(function, verify=NO_CERTIFICATES, timeout=PATIENCE_S)
    for function in (
        httpx.get,
        httpx.post,
        httpx.put,
        httpx.delete,
        httpx.request,
        httpx.stream,
        httpx.options,
        httpx.Client,
    )
)


def openai_client(url, key="none"):
    """OpenAI's own client, which retries nothing."""
    import openai

    class Own(openai.DefaultHttpxClient):
        def __del__(self):  # as the one that openai makes itself: tests leave clients behind
            self.close()

    own = Own(verify=NO_CERTIFICATES)
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE_S, http_client=own)
