"""What a spec gets on a site: images, pods, GPUs and nodes for its steps and its server. Pure.

Every other module takes these answers from a `ResolvedRelease`. A combination that a site cannot give is refused here,
in the property that has no answer; `resolve` checks all of them before any pod is started.
"""

from dataclasses import dataclass
from functools import cached_property

from slipway.tasks.contracts.engine.engine_kinds import kinds_with
from slipway.tasks.contracts.engine.scaling import Scaler
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.host_cache import host_cache_bytes
from slipway.tasks.contracts.fit.placement import (
    GpuProduct,
    Placement,
    StepPod,
    check_multinode_names,
    check_one_zone,
    on_gpus,
    on_spot,
    shape_of,
    with_memory,
)
from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS
from slipway.tasks.contracts.fit.step_needs import gpus_to_hold, needs_gpu, step_shape
from slipway.tasks.contracts.site.exposure import Routes
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.site.triton_images import TritonImage, check_digest, check_driver, triton_image
from slipway.tasks.contracts.spec.gpu_formats import check_format
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.plan import Estimate


@dataclass(frozen=True)
class ResolvedRelease:
    """A spec on a site. A property raises InputError where the site has no answer."""

    spec: ReleaseSpec
    site: Site

    @cached_property
    def gpu(self) -> GpuProduct:
        """The GPU product that the engine names, with the site's facts.

        Raises:
            InputError: the site has no such GPUs, or too few on a node for the ids in serving.gpus.
        """
        engine, site = self.spec.engine, self.site
        assert engine.gpu is not None
        facts = site.gpus.get(engine.gpu)
        if facts is None:
            raise InputError(
                f"engine.gpu {engine.gpu} is not at site {site.name}",
                found=", ".join(sorted(site.gpus)) or "no GPUs",
                remedy="Choose a GPU that the site has, add this one to gpus of the site file, or choose an engine "
                f"that needs none ({', '.join(kinds_with('on_gpu', False))}).",
            )
        if self.spec.gpus_reached > facts.per_node:
            raise InputError(
                f"serving.gpus {list(self.spec.serving.gpus)} names GPUs that no node of site {site.name} has",
                found=f"{facts.per_node} {engine.gpu} on a node, numbered from 0",
                remedy=f"Choose ids below {facts.per_node}, or a GPU with more on a node.",
            )
        return GpuProduct(engine.gpu, facts)

    @cached_property
    def nodes(self) -> int:
        """Nodes that one replica takes: a part of one, or several whole ones.

        Ranks of tensor parallelism exchange data in every layer and stay on a node. An engine counts its ranks by
        whole nodes (`gpus_per_node` in tensorrt_llm/mapping.py), so several nodes are always full.

        Raises:
            InputError: the ranks cannot be spread evenly over whole nodes. Names products that can.
        """
        engine = self.spec.engine
        if engine.gpu is None or engine.ranks <= self.gpu.facts.per_node:
            return 1
        per_node, tensor = self.gpu.facts.per_node, engine.tensor_parallel
        what = f"engine.tensor_parallel {tensor} x pipeline_parallel {engine.pipeline_parallel} is {engine.ranks} GPUs"
        on_a_node = f"{per_node} {engine.gpu} on a node of site {self.site.name}"
        if not engine.traits.spans_nodes:
            because = f": {engine.traits.one_node_because}" if engine.traits.one_node_because else ""
            raise InputError(
                f"{what}, and {engine.kind} is served on one node{because}",
                found=on_a_node,
                remedy=f"Lower the product to at most {per_node}, or choose a GPU with more on a node, or engine.kind "
                f"{' or '.join(kinds_with('spans_nodes'))}.",
            )
        if engine.ranks % per_node or per_node % tensor:
            nodes = -(-engine.ranks // per_node)
            fit = [f"{n} x {nodes * per_node // n}" for n in range(per_node, 0, -1) if not per_node % n]
            raise InputError(
                f"{what}, which cannot be spread evenly over whole nodes",
                found=on_a_node,
                expected=f"tensor x pipeline of {nodes} nodes: {', '.join(fit)}",
                remedy="Choose one of these products, or a GPU with more on a node.",
            )
        return engine.ranks // per_node

    @cached_property
    def engine_image(self) -> str:
        """Image that holds the engine's runtime: it boots the engine, and serves it on one node.

        Raises:
            InputError: neither spec nor site names one.
        """
        image = self.spec.serving.image or self.site.images.serving.get(self.spec.engine.kind)
        if image is None:
            field = f"images.serving.{self.spec.engine.kind}"
            raise InputError(
                f"site {self.site.name} names no serving image for {self.spec.engine.kind}",
                remedy=f"Add {field} to the site file, or serving.image to the spec.",
            )
        return image

    @cached_property
    def hub_token_secret(self) -> tuple[str, str] | None:
        """Secret and key of the Hub token; None: the source is public.

        Raises:
            InputError: it is one of the platform's own Secrets, which a spec may not send to a Hub.
        """
        if self.spec.source.token_secret is None:
            return None
        secret, _, key = self.spec.source.token_secret.partition("/")
        site = self.site
        owned = {site.object_store.credentials_secret, site.serving.mpi_secret}
        owned.add(site.signing.key_secret if site.signing else None)
        if site.serving.authentication != "none":
            owned |= {site.serving.authentication.keys_secret, site.serving.authentication.own_key_secret}
        owned.add(site.telemetry.traces.headers_secret if site.telemetry.traces else None)
        owned.add(site.mlflow.token_secret.partition("/")[0] if site.mlflow and site.mlflow.token_secret else None)
        if secret in owned:
            raise InputError(
                "source.token_secret names a Secret of the platform, which would be sent to the Hub",
                found=secret,
                expected="a Secret that holds a Hub token",
                remedy="Create a Secret for the token and name that.",
            )
        return secret, key

    @cached_property
    def runtime(self) -> TritonImage:
        """Contents of a GPU engine's image, by the Triton release that it names."""
        return triton_image(self.engine_image, self.spec.engine.kind)

    @cached_property
    def multinode_image(self) -> str:
        """Image of servers over several nodes. Only the site names it, because the server's pods connect by its sshd.

        Raises:
            InputError: the site names none.
        """
        if self.site.images.multinode is None:
            raise InputError(
                f"site {self.site.name} names no image for servers over several nodes",
                remedy="Add images.multinode to the site file.",
            )
        return self.site.images.multinode

    @cached_property
    def scaler(self) -> Scaler | None:
        """What scales the release; None: it has a fixed number of replicas.

        Raises:
            InputError: the spec asks for it, and the site has nothing that scales.
        """
        if self.spec.serving.autoscale is None:
            return None
        if self.site.serving.scaler is None:
            raise InputError(
                f"serving.autoscale asks for a scaler, and site {self.site.name} names none",
                expected="serving.scaler in the site file: hpa or keda",
                remedy="Install one as docs/reach.md says and name it in the site file, or remove serving.autoscale.",
            )
        return self.site.serving.scaler

    @cached_property
    def routes(self) -> Routes | None:
        """What leads clients outside the cluster to the model; None: it is exposed in no way or in another one.

        Raises:
            InputError: the spec asks for it, and the site does not say how, or another model may have its host.
        """
        if self.spec.serving.exposure != "ingress":
            return None
        if self.site.serving.routes is None:
            raise InputError(
                f"serving.exposure ingress needs a host and a controller, and site {self.site.name} names none",
                expected="serving.routes in the site file: kind ingress or gateway",
                remedy="Add it as docs/reach.md says, or choose load-balancer, or cluster with your own Ingress for "
                f"Service {self.spec.name}.",
            )
        if self.spec.rollout.strategy == "canary" and self.site.serving.routes.kind != "gateway":
            raise InputError(
                f"rollout.strategy canary shifts the weights of an HTTPRoute, and site {self.site.name} has none",
                found=f"serving.routes of kind {self.site.serving.routes.kind} in the site file",
                expected="kind gateway",
                remedy="Choose blue-green, or a site with a Gateway as docs/reach.md says.",
            )
        if other := self.site.serving.routes.shared_with(self.spec.name):
            raise InputError(
                f"model {self.spec.name} cannot have a host at site {self.site.name}: it would be that of model "
                f"{other} for gRPC",
                found=f"host {self.site.serving.routes.host} and grpc_host {self.site.serving.routes.grpc_host}",
                remedy="Choose another name, such as one that does not end in -grpc.",
            )
        return self.site.serving.routes

    @cached_property
    def serving(self) -> Placement:
        """The place of the server: the shape that spec or site names, or GPUs of the product that the spec names.

        Raises:
            InputError: the site has no such shape, GPUs or image, or its nodes do not fit the ranks.
        """
        engine = self.spec.engine
        if engine.gpu is None:
            name = self.spec.serving.shape or self.site.serving.shape
            return Placement(self.engine_image, shape_of(self.site, name, "serving"), ranks=0)
        several = self.nodes > 1
        gpus = self.gpu.facts.per_node if several else engine.ranks
        shape = on_gpus(shape_of(self.site, "gpu", "serving"), self.gpu.name, gpus)
        shape = with_memory(shape, min(gpus, engine.ranks) * host_cache_bytes(self.spec))
        if self.site.serving.spot:
            shape = on_spot(shape, self.gpu)
        if not several:
            return Placement(self.engine_image, shape, engine.ranks)
        check_multinode_names(self.spec)
        check_one_zone(self.spec, self.gpu)
        return Placement(self.multinode_image, shape, engine.ranks, self.nodes, self.gpu.facts.efa)

    def step(self, step: Step, estimate: Estimate | None = None) -> StepPod:
        """What the pod of a step runs on.

        Args:
            step: the step.
            estimate: the plan's; None before there is a plan.

        Raises:
            InputError: the site lacks the shape, the image or the GPUs that the step needs.
        """
        shape = shape_of(self.site, step_shape(step, self.spec), step)
        gpus = self.step_gpus(step, estimate)
        shape = on_gpus(shape, self.gpu.name, gpus) if gpus else shape.model_copy(update={"gpus": 0})
        if gpus:
            shape = on_spot(shape, self.gpu)
        if step == "assemble" and gpus:
            shape = with_memory(shape, self.spec.engine.ranks * host_cache_bytes(self.spec))
        return StepPod(self.step_image(step), shape)

    def step_image(self, step: Step) -> str:
        """Image of a step's pod.

        Raises:
            InputError: the site does not name it.
        """
        image = STEP_KINDS[step].image
        if image == "harness":
            return self.harness_image
        if image == "tasks" and not needs_gpu(step, self.spec):
            return self.site.images.tasks
        if step != "quantize" or not self.spec.engine.traits.quantized_by_modelopt:
            return self.engine_image
        if self.site.images.modelopt is None:
            raise InputError(
                f"site {self.site.name} has no image with ModelOpt, which quantizes to "
                f"{self.spec.quantization.format} for {self.spec.engine.kind}",
                remedy="Add images.modelopt to the site file, or choose quantization.format none.",
            )
        return self.site.images.modelopt

    @property
    def harness_image(self) -> str:
        """Image of step evaluate.

        Raises:
            InputError: the site names none.
        """
        if self.site.images.harness is None:
            raise InputError(
                f"gate.harness needs an image with lm-evaluation-harness, and site {self.site.name} names none",
                remedy="Build images/harness and add images.harness to the site file, or remove gate.harness.",
            )
        return self.site.images.harness

    def step_gpus(self, step: Step, estimate: Estimate | None = None) -> int:
        """GPUs of a step's pod: one per rank, and at most those of a node.

        assemble takes none for ranks over several nodes, which no single pod can boot. It boots a group's member on the
        GPU ids that the member will have, so its pod has all GPUs up to the highest id. quantize takes enough to hold
        the unquantized model, or the shape's GPUs if those are more: calibration spreads the model over them.
        """
        if not needs_gpu(step, self.spec):
            return 0
        ranks, facts = self.spec.engine.ranks, self.gpu.facts
        on_a_node = min(ranks, facts.per_node)
        if step == "assemble":
            return 0 if on_a_node < ranks else max(on_a_node, self.spec.gpus_reached)
        if step != "quantize":
            return on_a_node
        holding = gpus_to_hold(estimate.gpu_bytes, facts) if estimate else 0
        return max(shape_of(self.site, "gpu", step).gpus, on_a_node, holding)


def resolve(spec: ReleaseSpec, site: Site) -> ResolvedRelease:
    """What the spec gets on the site, after checking that the site can give it.

    Raises:
        InputError: the first thing that the site lacks, or that cannot work on what it has.
    """
    release = ResolvedRelease(spec, site)
    nodes, _ = release.serving.nodes, release.hub_token_secret
    _ = release.scaler, release.routes
    if spec.gate.harness is not None:
        _ = release.harness_image
    if spec.engine.gpu is None:
        return release
    if nodes > 1:
        _check_multinode_image(release)
    field = "serving.image" if spec.serving.image else f"images.serving.{spec.engine.kind}"
    runtime = release.runtime
    check_digest(field, release.engine_image)
    check_driver(runtime, release.gpu.name, release.gpu.facts)
    check_format(spec.engine.kind, spec.quantization, release.gpu.name, release.gpu.facts.architecture)
    if spec.engine.traits.quantized_by_modelopt and needs_gpu("quantize", spec):
        check_digest("images.modelopt", release.step_image("quantize"))
    return release


def _check_multinode_image(release: ResolvedRelease) -> None:
    """Refuse an image of the spec: pods of a server over several nodes start each other's ranks through sshd."""
    if image := release.spec.serving.image:
        raise InputError(
            f"serving.image does not apply to a release on {release.nodes} nodes, whose pods need the sshd of the "
            "site's images.multinode",
            found=image,
            remedy="Remove serving.image, or name an image made from images/triton-multinode as images.multinode of "
            "the site.",
        )
    triton_image(release.multinode_image, release.spec.engine.kind)
