"""What a spec gets on a site: one answer to each question."""

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.fit.resolution import ResolvedRelease, resolve
from slipway.tasks.contracts.site.authentication import Authentication
from slipway.tasks.contracts.site.signing import Signing
from slipway.tasks.contracts.site.site import MlflowSite, PodShape
from slipway.tasks.contracts.site.telemetry import Telemetry
from slipway.tasks.contracts.stored.plan import Estimate
from tests.fakes.documents.gpu_site import GPUS, MULTINODE, SERVING, gpu_site
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

A10G = "NVIDIA-A10G"


def resolved(kind="trt-engine", quantization="int4_awq", serving=None, site=None, **engine):
    settings = {**SPEC["engine"], "kind": kind, "gpu": A10G, **engine}
    asked = spec(engine=settings, quantization={"format": quantization}, serving=serving or {})
    return ResolvedRelease(asked, site or gpu_site())


def test_a_cpu_release_may_name_the_shape_of_its_servers_which_the_boot_test_has_too():
    site = gpu_site()
    wide = PodShape(cpu="8", memory="16Gi", scratch="20Gi", node_selector={"cpu": "amx"})
    site = site.model_copy(update={"shapes": {**site.shapes, "amx": wide}})

    release = resolve(spec(serving={"shape": "amx"}), site)

    assert release.serving.shape == wide
    assert [release.step(step).shape == wide for step in ("build", "assemble", "publish")] == [False, True, False]
    with refused(what="no shape avx, which serving needs", found="amx", remedy="shapes.avx"):
        resolve(spec(serving={"shape": "avx"}), site)


def test_a_release_on_gpus_names_no_shape():
    with pytest.raises(ValidationError, match=r"runs on engine\.gpu"):
        resolved(serving={"shape": "amx"})


def test_a_cpu_release_takes_the_sites_serving_shape_and_no_gpu():
    site = gpu_site()
    release = resolve(spec(), site)

    assert release.serving.image == site.images.serving["openvino"]
    assert (release.serving.nodes, release.serving.ranks, release.serving.devices) == (1, 0, {})
    assert release.step("quantize").image == site.images.tasks
    assert release.step("assemble").image == release.serving.image


def test_ranks_of_one_node_are_gpus_of_one_pod():
    placement = resolved(tensor_parallel=2).serving

    assert (placement.image, placement.nodes, placement.ranks, placement.shape.gpus) == (SERVING, 1, 2, 2)
    assert placement.shape.node_selector["nvidia.com/gpu.product"] == A10G
    assert placement.efa == 0


def test_ranks_of_several_nodes_fill_them_and_run_the_sites_image():
    gpus = {A10G: {**GPUS[A10G], "efa": 2}}
    release = resolved(tensor_parallel=4, pipeline_parallel=2, site=gpu_site(gpus=gpus))

    assert (release.serving.image, release.serving.nodes, release.serving.shape.gpus) == (MULTINODE, 2, 4)
    assert release.serving.devices == {"nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "2"}
    assert release.engine_image == SERVING


@pytest.mark.parametrize(
    ("kind", "quantization", "images"),
    [
        ("trt-engine", "none", {"quantize": SERVING, "build": SERVING, "assemble": SERVING}),
        ("llmapi", "none", {"quantize": "tasks", "build": "tasks", "assemble": SERVING}),
        ("llmapi", "int4_awq", {"quantize": "modelopt:1", "build": "tasks", "assemble": SERVING}),
    ],
)
def test_each_step_runs_in_the_image_that_holds_its_tools(kind, quantization, images):
    site = gpu_site()
    site = site.model_copy(update={"images": site.images.model_copy(update={"modelopt": "modelopt:1"})})
    release = resolved(kind, quantization, site=site)

    expected = {step: site.images.tasks if image == "tasks" else image for step, image in images.items()}
    assert {step: release.step(step).image for step in images} == expected
    assert release.step("plan").image == site.images.tasks


def test_quantize_takes_as_many_gpus_as_hold_the_weights_that_are_estimated():
    estimate = Estimate(download_bytes=0, scratch_bytes=0, memory_bytes=0, gpu_bytes=50 * 2**30)

    assert resolved().step("quantize", estimate).shape.gpus == 3
    assert resolved().step("quantize").shape.gpus == 1
    assert resolved().step("build", estimate).shape.gpus == 1


def test_a_step_that_needs_nothing_of_the_engine_has_a_pod_where_the_site_lacks_the_gpu():
    """plan runs, and says what the site lacks."""
    release = resolved(gpu="NVIDIA-B200")

    assert release.step("plan").shape.gpus == 0
    with refused(what="engine.gpu NVIDIA-B200 is not at site gpus", found="NVIDIA-A10G, NVIDIA-L4"):
        release.step("build")


def test_an_image_of_the_spec_is_refused_where_pods_need_the_sites_sshd():
    release = resolved(tensor_parallel=4, pipeline_parallel=2, serving={"image": "example.com/own:1"})

    with refused(what="serving.image does not apply to a release on 2 nodes", remedy="Remove serving.image"):
        resolve(release.spec, release.site)


def test_a_site_without_modelopt_is_refused_by_the_step_that_needs_it():
    with refused(what="no image with ModelOpt", remedy="Add images.modelopt"):
        resolved("llmapi").step("quantize")


@pytest.mark.parametrize("section", ["object_store.credentials_secret", "serving.mpi_secret"])
def test_a_secret_of_the_platform_is_not_sent_to_the_hub(section):
    site = gpu_site()
    part, name = section.split(".")
    site = site.model_copy(update={part: getattr(site, part).model_copy(update={name: "of-the-platform"})})
    asked = spec(source={**SPEC["source"], "token_secret": "of-the-platform/key"})

    with refused(found="of-the-platform", expected="a Secret that holds a Hub token"):
        resolve(asked, site)


def test_the_hashes_of_api_keys_are_not_sent_to_the_hub():
    site = gpu_site()
    site = site.model_copy(update={"serving": site.serving.model_copy(update={"authentication": Authentication()})})
    asked = spec(source={**SPEC["source"], "token_secret": "slipway-api-keys/keys"})

    with refused(found="slipway-api-keys", expected="a Secret that holds a Hub token"):
        resolve(asked, site)


def test_the_private_key_of_signatures_is_not_sent_to_the_hub():
    site = gpu_site().model_copy(update={"signing": Signing(key_secret="slipway-signing")})
    asked = spec(source={**SPEC["source"], "token_secret": "slipway-signing/private.pem"})

    with refused(found="slipway-signing", expected="a Secret that holds a Hub token"):
        resolve(asked, site)


def test_what_authenticates_traces_is_not_sent_to_the_hub():
    traces = {"endpoint": "http://collector.monitoring.svc:4318", "headers_secret": "otel-headers"}
    site = gpu_site().model_copy(update={"telemetry": Telemetry.model_validate({"traces": traces})})
    asked = spec(source={**SPEC["source"], "token_secret": "otel-headers/OTEL_EXPORTER_OTLP_HEADERS"})

    with refused(found="otel-headers", expected="a Secret that holds a Hub token"):
        resolve(asked, site)


def test_mlflows_token_is_not_sent_to_the_hub():
    site = gpu_site().model_copy(
        update={"mlflow": MlflowSite(endpoint="https://mlflow.x", token_secret="mlflow/token")}
    )

    with refused(found="mlflow", expected="a Secret that holds a Hub token"):
        resolve(spec(source={**SPEC["source"], "token_secret": "mlflow/token"}), site)


def test_a_hub_token_has_a_secret_and_a_key():
    asked = spec(source={**SPEC["source"], "token_secret": "hf/token"})

    assert ResolvedRelease(asked, gpu_site()).hub_token_secret == ("hf", "token")
