"""Every route of Triton, through the real front to a real Triton: clients' own work, and nothing of its administrator.

The routes are those of src/http_server.cc of triton-inference-server/server at r26.08 (e1db8a60), the methods those of
the client's own descriptors.
"""

import json
import queue
import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton_grpc
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from slipway.tasks.serving.rendered import commands, front, front_routes
from tests.local.serving.openai_server import OpenAiServer
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http
from tests.support.seeds import dice
from tests.support.waiting import PATIENCE_S

CONFIG = """
name: "demo" backend: "python" max_batch_size: 0
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [len(pb_utils.get_input_tensor_by_name(each, "text_input").as_numpy()[0]) for each in requests]
        outputs = [pb_utils.Tensor("text_output", np.array([str(size).encode()], dtype=object)) for size in sizes]
        return [pb_utils.InferenceResponse([output]) for output in outputs]
"""
SERVER = commands.Server(LOOPBACK, 30, "region", control_key="nobody-knows")
RESTRICTED = [word for word in commands.single(SERVER) if "restricted" in word]
REGION = "/v2/{kind}sharedmemory{region}/{action}"
LIMIT = front.DEFAULT_LIMITS.body_bytes
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"

INFER = {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["hello"]}]}
GENERATE = {"text_input": "hello"}
ALLOWED = [
    ("GET", "/v2", None),
    ("GET", "/v2/health/live", None),
    ("GET", "/v2/health/ready", None),
    ("GET", "/v2/models/stats", None),
    *(
        ("GET", f"/v2/models/demo{version}{rest}", None)
        for version in ("", "/versions/1")
        for rest in ("", "/ready", "/config", "/stats")
    ),
    *(
        ("POST", f"/v2/models/demo{version}/{verb}", INFER if verb == "infer" else GENERATE)
        for version in ("", "/versions/1")
        for verb in ("infer", "generate")
    ),
    ("GET", "/v2/health/live/../ready", None),
    ("GET", "//v2//models/demo/ready", None),
]
ADMINISTRATION = [
    ("GET", "/v2/logging"),
    ("POST", "/v2/logging"),
    *((method, f"/v2{model}/trace/setting") for method in ("GET", "POST") for model in ("", "/models/demo")),
    ("POST", "/v2/models/demo/versions/1/trace/setting"),
    *(
        ("POST", f"/v2/repository{name}/{action}")
        for name in ("", "/models")
        for action in ("index", "models/demo/load", "models/demo/unload")
    ),
    *(
        (
            "GET" if action == "status" else "POST",
            REGION.format(kind=kind, region=region, action=action),
        )
        for kind in ("system", "cuda")
        for region in ("", "/region/mine")
        for action in ("status", "register", "unregister")
    ),
]
UNREADABLE = [
    "{",
    "text_input=hello",
    "[]",
    '"hello"',
    "null",
    "NaN",
    '{"text_input": NaN}',
    '{"text_input": ["hello", 1]}',
    '{"text_input": {"a": 1}}',
    '{"text_input": null}',
    '{"text_input": "\\ud800"}',
    '{"text_input": "hello", "parameters": 1}',
    '{"text_input": "hello", "parameters": []}',
    '{"text_input": "hello", "parameters": {"a": {"b": 1}}}',
    '{"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}], "parameters": {"\\u0000": 1}}',
    '{"inputs": 1}',
    '{"inputs": [1]}',
    '{"inputs": [{"name": 1}]}',
    '{"inputs": [{"name": "text_input", "shape": [-1], "datatype": "BYTES", "data": ["hello"]}]}',
    '{"inputs": [{"name": "text_input", "shape": ["x"], "datatype": "BYTES", "data": ["hello"]}]}',
    '{"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": 1}]}',
    '{"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [[[1]]]}]}',
    '{"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES"}]}',
    '{"id": 1, "parameters": 1, "outputs": 1, "inputs": []}',
    "[" * 4000,
    b"\xff\xfe",
]
OTHER_SPELLINGS = [
    ("GET", "/v2/models/../logging"),
    ("GET", "/v2/models/demo/ready/../../../logging"),
    ("GET", "/v2//logging"),
    ("GET", "/v2/./logging"),
    ("GET", "/v2/logging/"),
    ("GET", "/V2/logging"),
    ("GET", "/v2/LOGGING"),
    ("GET", "/v2%2flogging"),
    ("GET", "/v2/%6cogging"),
    ("GET", "/v2/models/demo%2f..%2f..%2flogging"),
    ("GET", "/v2/models/%2e%2e/logging"),
    ("GET", "/v2/models/..%5c..%5clogging/config"),
    ("GET", "/v2/models/demo/config;/../../logging"),
    ("GET", "/v2/logging?/v2/health/live"),
    ("GET", "/v1/../v2/logging"),
    ("GET", "http://x/v2/logging"),
    ("GET", "/metrics"),
    ("GET", "/"),
    ("DELETE", "/v2/models/demo"),
    ("POST", "/v2/models/demo/config"),
    ("CONNECT", "/v2/logging"),
]


@pytest.fixture(scope="module")
def triton(start_server, tmp_path_factory):
    repository = tmp_path_factory.mktemp("door")
    (repository / "demo" / "1").mkdir(parents=True)
    (repository / "demo" / "config.pbtxt").write_text(CONFIG)
    (repository / "demo" / "1" / "model.py").write_text(MODEL)
    return start_server(repository, arguments=RESTRICTED)


@pytest.fixture(scope="module")
def door(triton, tmp_path_factory):
    with OpenAiServer(triton, tmp_path_factory.mktemp("front")) as running:
        yield running


@pytest.fixture(scope="module")
def channel(door):
    with grpc.insecure_channel(f"{LOOPBACK}:{door.grpc_port}") as opened:
        yield opened


def raw_status(port, method, path):
    """Status of a request whose path no client library touches."""
    with socket.create_connection((LOOPBACK, port), timeout=30) as connection:
        body = "{}" if method == "POST" else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        connection.sendall(head.encode())
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(("method", "path", "body"), ALLOWED)
def test_what_clients_need_passes(door, method, path, body):
    assert plain_http.request(method, f"{door.url}{path}", json=body).status_code == 200


@pytest.mark.parametrize(("method", "path"), [*ADMINISTRATION, *OTHER_SPELLINGS])
def test_nothing_else_passes_over_http(door, method, path):
    assert raw_status(door.port, method, path) in {400, 404}


@pytest.mark.parametrize(("method", "path"), ADMINISTRATION)
def test_triton_itself_refuses_its_administration_over_http(triton, method, path):
    assert raw_status(triton.http_port, method, path) in {400, 403, 404}


def call(channel, name):
    method = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name[name]
    request = getattr(service_pb2, method.input_type.name)()
    stream = name == "ModelStreamInfer"
    opened = (channel.stream_stream if stream else channel.unary_unary)(
        f"/{method.containing_service.full_name}/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=lambda read: read,
    )
    try:
        if stream:
            list(opened(iter([request]), timeout=30))
        else:
            opened(request, timeout=30)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


METHODS = sorted(service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name)
OF_MODELS = {"ModelMetadata", "ModelInfer", "ModelConfig", "ModelReady"}


@pytest.mark.parametrize("name", METHODS)
def test_grpc_lets_the_same_methods_through(channel, triton, name):
    allowed = name in front_routes.GRPC_METHODS
    assert (call(channel, name) != grpc.StatusCode.UNIMPLEMENTED) == allowed

    with grpc.insecure_channel(f"{LOOPBACK}:{triton.grpc_port}") as direct:
        refused = call(direct, name) in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED}
    assert refused != allowed


@pytest.mark.parametrize(
    "path",
    [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/Watch",
        "/inference.GRPCInferenceService/../inference.GRPCInferenceService/LogSettings",
        "/inference.GRPCInferenceService//ServerLive",
        "/inference.grpcinferenceservice/ServerLive",
    ],
)
def test_no_other_service_is_reached(channel, path):
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(path)(b"", timeout=30)

    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.fixture(scope="module")
def client(door):
    return triton_grpc.InferenceServerClient(f"{LOOPBACK}:{door.grpc_port}")


def text(size):
    tensor = triton_grpc.InferInput("text_input", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"x" * size], dtype=np.object_))
    return [tensor]


@pytest.mark.parametrize("size", [1, LIMIT // 2, LIMIT - 1000])
def test_prompts_within_the_limit_pass(door, client, size):
    answer = plain_http.post(f"{door.url}/v2/models/demo/generate", json={"text_input": "x" * size}, timeout=60)

    assert answer.json()["text_output"] == str(size)
    assert client.infer("demo", text(size)).as_numpy("text_output")[0] == str(size).encode()


@pytest.mark.parametrize(
    ("path", "size"),
    [("infer", 90 << 20), ("generate", 20 << 20), ("generate", LIMIT + 1), ("generate_stream", 1 << 20)],
)
def test_a_larger_body_is_refused_over_http(door, triton, path, size):
    begun = triton.begun()
    body = json.dumps({"text_input": "x" * size}).encode()
    answer = plain_http.post(f"{door.url}/v2/models/demo/{path}", content=body, timeout=60)

    assert (answer.status_code, answer.json()) == (413, {"error": front.TOO_LARGE})
    assert triton.begun() == begun


def test_a_larger_body_without_a_length_is_refused(door):
    answer = plain_http.post(
        f"{door.url}/v2/models/demo/generate", content=(b"x" * 1000 for _ in range(2000)), timeout=60
    )

    assert answer.status_code == 413


@pytest.mark.parametrize("size", [LIMIT + 1, 90 << 20])
def test_a_larger_message_is_refused_over_grpc(client, triton, size):
    begun = triton.begun()
    with pytest.raises(InferenceServerException) as refused:
        client.infer("demo", text(size))

    assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    assert triton.begun() == begun
    assert client.infer("demo", text(5)).as_numpy("text_output")[0] == b"5"


def streamed(door, *messages):
    """The status of a stream with these messages, and its text."""
    with grpc.insecure_channel(f"{LOOPBACK}:{door.grpc_port}") as opened:
        answers = opened.stream_stream(STREAM)(iter([each.SerializeToString() for each in messages]), timeout=60)
        try:
            list(answers)
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def test_a_larger_message_is_refused_within_a_stream(door):
    large = service_pb2.ModelInferRequest(model_name="demo", id="x" * (LIMIT + 1))

    assert streamed(door, large) == (grpc.StatusCode.RESOURCE_EXHAUSTED, front.TOO_LARGE)


def test_a_stream_takes_one_request_for_several_at_once_may_end_triton(door, client, triton):
    """docs/decisions/0015."""
    wrong, absent = (service_pb2.ModelInferRequest(model_name=name) for name in ("demo", "absent"))
    refused = grpc.StatusCode.FAILED_PRECONDITION, front_routes.ONE_REQUEST
    with ThreadPoolExecutor(4) as strangers:
        found = set(strangers.map(lambda _: streamed(door, wrong, absent, wrong), range(200)))

    assert found == {refused}
    assert streamed(door, absent)[0] == grpc.StatusCode.OK
    assert triton.process.poll() is None
    assert client.infer("demo", text(5)).as_numpy("text_output")[0] == b"5"


def test_a_later_request_of_a_stream_is_refused_when_the_client_ends_it_and_the_first_is_answered(door, triton):
    """docs/decisions/0015: no earlier, for Triton waits for the rest of what the front made of the second."""
    asked, begun = queue.Queue(), triton.begun()
    request = service_pb2.ModelInferRequest(model_name="demo")
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"\5\0\0\0hello")
    with grpc.insecure_channel(f"{LOOPBACK}:{door.grpc_port}") as opened:
        answers = opened.stream_stream(STREAM)(iter(asked.get, None), timeout=PATIENCE_S)
        asked.put(request.SerializeToString())
        first = service_pb2.ModelStreamInferResponse.FromString(next(answers))
        asked.put(request.SerializeToString())
        asked.put(None)
        with pytest.raises(grpc.RpcError) as refused:
            next(answers)

    assert (first.error_message, first.infer_response.model_name) == ("", "demo")
    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        front_routes.ONE_REQUEST,
    )
    assert triton.begun() == begun + 1


ALL_ESCAPED = "".join(f"\\u{ord(letter):04X}" for letter in "classification")
CLASSES = {
    "plain": '"classification": 1',
    "escaped": r'"cl\u0061ssification": 1',
    "all of it escaped": f'"{ALL_ESCAPED}"\n :1',
}


def infer_of(text="hello", parameters=""):
    tensor = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [text]}
    output = f'{{"name": "text_output", "parameters": {{{parameters}}}}}'
    return f'{{"inputs": [{json.dumps(tensor)}], "outputs": [{output}]}}'


@pytest.mark.parametrize("written", CLASSES.values(), ids=CLASSES)
def test_classes_of_a_text_which_end_triton_are_refused_over_http(door, triton, written):
    answer = plain_http.post(f"{door.url}/v2/models/demo/infer", content=infer_of(parameters=written))

    assert (answer.status_code, answer.json()) == (400, {"error": front_routes.NO_CLASSES})
    assert triton.process.poll() is None


@pytest.mark.parametrize("told", ["{}e-3", "{}.e-3", "-1", "nan", "0x1", "{}, 1", "+{}"])
def test_classes_are_found_however_the_length_of_the_json_is_written(door, triton, told):
    """Triton reads the digits at the start (`std::stoi`), and Lua a whole number."""
    content = infer_of(parameters=CLASSES["plain"])
    length = {"Inference-Header-Content-Length": told.format(len(content))}
    answer = plain_http.post(f"{door.url}/v2/models/demo/infer", content=content + "\n" * 2, headers=length)

    assert (answer.status_code, answer.json()) == (400, {"error": front_routes.NO_CLASSES})
    assert triton.process.poll() is None


def nested(number, content):
    """A field of protobuf with bytes in it."""
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize("size", [b"\x0e", b"\x8e\x00", b"\x8e\x80\x80\x00"])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_classes_of_a_text_which_end_triton_are_refused_over_grpc(door, triton, method, size):
    """The length of a name may be written in more bytes than it needs."""
    entry = b"\x0a" + size + b"classification" + nested(2, b"\x10\x01")
    output = nested(6, nested(1, b"text_output") + nested(2, entry))
    request = service_pb2.ModelInferRequest(model_name="demo")
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"hello")
    message = request.SerializeToString() + output
    with grpc.insecure_channel(f"{LOOPBACK}:{door.grpc_port}") as opened:
        answers = opened.stream_stream(f"/inference.GRPCInferenceService/{method}")(iter([message]), timeout=60)
        with pytest.raises(grpc.RpcError) as refused:
            list(answers)

    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        front_routes.NO_CLASSES,
    )
    assert triton.process.poll() is None


@pytest.mark.parametrize("prompt", ["classification", 'classification of "classification": 1', "a\n classification"])
def test_prompts_about_classes_pass(door, client, prompt):
    tensor = triton_grpc.InferInput("text_input", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([prompt.encode()], dtype=np.object_))
    answer = plain_http.post(f"{door.url}/v2/models/demo/infer", content=infer_of(prompt))

    assert answer.json()["outputs"][0]["data"] == [str(len(prompt))]
    assert client.infer("demo", [tensor]).as_numpy("text_output")[0] == str(len(prompt)).encode()


def test_a_model_may_be_called_classification(door):
    """Its name is the first field of a request, and as long as the parameter's."""
    assert streamed(door, service_pb2.ModelInferRequest(model_name="classification")) == (grpc.StatusCode.OK, "")


def test_an_id_and_the_text_of_a_parameter_may_be_that_word(door):
    request = service_pb2.ModelInferRequest(model_name="demo", id="classification")
    request.parameters["user"].string_param = "classification"
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"hello")

    assert streamed(door, request) == (grpc.StatusCode.OK, "")


def test_a_prompt_may_be_that_word_over_grpc(door):
    request = service_pb2.ModelInferRequest(model_name="demo")
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"classification")

    assert streamed(door, request) == (grpc.StatusCode.OK, "")


def frame(kind, flags, stream, payload):
    """A frame of HTTP/2 (RFC 9113)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def answered(port, *parts):
    """The body and the trailers, packed, of the answer to a call of ModelInfer whose message is sent in these frames."""
    headers = {":method": "POST", ":scheme": "http", ":authority": "x"}
    headers |= {":path": "/inference.GRPCInferenceService/ModelInfer"}
    headers |= {"te": "trailers", "content-type": "application/grpc"}
    block = b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(each)]) + each.encode() for name, each in headers.items()
    )
    data = [frame(0, part is parts[-1], 1, part) for part in parts]
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block) + b"".join(data)
    with socket.create_connection((LOOPBACK, port), timeout=60) as connection:
        connection.sendall(sent)
        coming, received, is_over = connection.makefile("rb"), b"", False
        while not is_over:
            head = coming.read(9)
            payload = coming.read(int.from_bytes(head[:3], "big"))
            received += payload if head[3] == 0 or head[4] & 1 else b""
            is_over = head[3] == 1 and bool(head[4] & 1)
    return received


@pytest.mark.parametrize("end", [13, 20, 43, 44, 45])
def test_an_id_may_be_that_word_wherever_a_frame_ends(door, end):
    request = service_pb2.ModelInferRequest(model_name="demo", id="classification")
    request.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"hello")
    message = request.SerializeToString()
    sent = b"\0" + len(message).to_bytes(4, "big") + message

    assert answered(door.grpc_port, sent[:end], sent[end:]) == answered(door.grpc_port, sent)


def test_a_compressed_request_is_not_unpacked(door, client):
    packed = plain_http.post(f"{door.url}/v2/models/demo/generate", content=b"x", headers={"Content-Encoding": "gzip"})
    with pytest.raises(InferenceServerException) as refused:
        client.infer("demo", text(5), compression_algorithm="gzip")

    assert (packed.status_code, refused.value.status()) == (415, "StatusCode.UNIMPLEMENTED")


@pytest.mark.parametrize("verb", ["infer", "generate", "generate_stream"])
@pytest.mark.parametrize("body", UNREADABLE)
def test_a_body_that_triton_cannot_read_is_a_bad_request(door, verb, body):
    answer = plain_http.post(f"{door.url}/v2/models/demo/{verb}", content=body)

    assert answer.status_code == 400
    assert answer.json()["error"]


EDGES = (
    0x7F,
    0x80,
    0x8F,
    0x90,
    0x9F,
    0xA0,
    0xBF,
    0xC0,
    0xC1,
    0xC2,
    0xDF,
    0xE0,
    0xEC,
    0xED,
    0xEE,
    0xEF,
    0xF0,
    0xF3,
    0xF4,
)
EDGES += (0xF5, 0xFF)
PIECE = 65_536
"""Bytes that the front looks at together."""


def identities(rolled):
    """Texts for an id, most of them not UTF-8, and where in the body they begin."""
    characters = [bytes(rolled.choices(EDGES, k=rolled.randint(1, 4))) for _ in range(150)]
    characters += [
        chr(rolled.choice((0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF))).encode() * 9
    ] * 30
    return [(each, rolled.choice((0, PIECE, 2 * PIECE)) - rolled.randint(0, 40)) for each in characters]


def is_utf_8(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_what_is_not_utf_8_is_refused_wherever_it_stands_for_triton_would_answer_with_it(door):
    statuses = set()
    with plain_http.client(base_url=door.url) as client:
        for identity, at in identities(dice()):
            body = b'{"text_input": "%s", "id": "%s"}' % (b"x" * max(at, 0), identity)
            answer = client.post("/v2/models/demo/generate", content=body)
            refused = (answer.status_code, answer.json().get("error")) == (400, front_routes.NOT_UTF_8)

            assert refused != is_utf_8(identity), (identity, at, answer.text)
            statuses.add(answer.status_code)
    assert statuses == {200, 400}


def test_what_is_not_utf_8_is_refused_of_tensors_too(door):
    body = infer_of().encode().replace(b"{", b'{"id": "\xff", ', 1)
    answer = plain_http.post(f"{door.url}/v2/models/demo/infer", content=body)

    assert (answer.status_code, answer.json()) == (400, {"error": front_routes.NOT_UTF_8})


def test_tensors_in_binary_need_not_be_utf_8(door):
    tensor = {"name": "text_input", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}
    head = json.dumps({"id": "\u00e9", "inputs": [tensor]}, ensure_ascii=False).encode()
    url, given = f"{door.url}/v2/models/demo/infer", {"Inference-Header-Content-Length": str(len(head))}
    answer = plain_http.post(url, content=head + b"\x02\0\0\0\xff\xed", headers=given)

    assert answer.json()["outputs"][0]["data"] == ["2"]


@pytest.mark.parametrize("path", ["generate?a=/infer", "generate_stream?/infer"])
def test_only_infer_has_tensors_in_binary(door, path):
    given = {"Inference-Header-Content-Length": "10"}
    answer = plain_http.post(f"{door.url}/v2/models/demo/{path}", content=b'{"text_input": "\xff"}', headers=given)

    assert answer.json() == {"error": front_routes.NOT_UTF_8}


def test_an_id_that_is_not_utf_8_is_refused_over_grpc(door):
    wrong = b"\x0a\x04demo\x1a\x03\xed\xa0\x80"  # ModelInferRequest: model_name, id
    with grpc.insecure_channel(f"{LOOPBACK}:{door.grpc_port}") as opened, pytest.raises(grpc.RpcError) as refused:
        opened.unary_unary("/inference.GRPCInferenceService/ModelInfer")(wrong, timeout=60)

    assert "\ufffd" not in refused.value.details()


def test_the_front_says_that_it_is_alive_on_a_port_of_its_own(door):
    assert plain_http.get(f"http://{LOOPBACK}:{door.probe_port}/live").status_code == 200
