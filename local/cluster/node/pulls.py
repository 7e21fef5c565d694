"""Images that take time to pull or cannot be pulled, with the states, messages and back-off of the kubelet.

https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/images/image_manager.go.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..objects.resources import Object
from .images import Image, ImageTable

SHOWN_S = 1.0  # how long a failed attempt is shown before its back-off
BACK_OFF_S = 10.0
BACK_OFF_MAX_S = 300.0
Tell = Callable[[str, str], None]


@dataclass
class PulledImages:
    """The images that the node has, and those on their way. Each is pulled once, for all containers."""

    began: dict[str, float] = field(default_factory=dict)

    def left_s(self, name: str, image: Image) -> float:
        """Seconds until the node has the image; the first call begins to pull it."""
        if not image.pull_s:
            return 0.0
        return self.began.setdefault(name, time.monotonic()) + image.pull_s - time.monotonic()


@dataclass
class Pull:
    """The attempts to pull the image of one container."""

    container: Object
    failures: int = 0
    due: float = 0.0
    told: bool = False
    began: float | None = None

    def wait_s(self, image: Image, pulled: PulledImages, normal: Tell) -> float:
        """Seconds until the container can be created; 0 once the node has the image."""
        name = self.container["image"]
        left_s = pulled.left_s(name, image)
        if left_s > 0:
            if self.began is None:
                self.began = time.monotonic()
                normal("Pulling", f'Pulling image "{name}"')
            return left_s
        if self.began is None and not self.failures:
            normal("Pulled", f'Container image "{name}" already present on machine')
            return 0.0
        took = f"{time.monotonic() - (self.began or time.monotonic()):.3f}s"
        text = f'Successfully pulled image "{name}" in {took} ({took} including waiting). Image size: 0 bytes.'
        normal("Pulled", text)
        self.began, self.failures = None, 0
        return 0.0

    def attempt(self, images: ImageTable, normal: Tell, warning: Tell) -> tuple[str, str, float]:
        """Try to pull an image that the table does not have, unless it is too early to try again.

        Returns:
            Reason and message of the container's `waiting` state, and the seconds until the next check.
        """
        image = self.container["image"]
        if self.container.get("imagePullPolicy") == "Never":
            text = f'Container image "{image}" is not present with pull policy of Never'
            if not self.told:
                warning("ErrImageNeverPull", text)
                warning("Failed", "Error: ErrImageNeverPull")
            self.told = True
            return "ErrImageNeverPull", text, BACK_OFF_S
        why = _why(image, images)
        left_s = self.due - time.monotonic()
        if left_s > 0:
            if not self.told:
                normal("BackOff", f'Back-off pulling image "{image}"')
                warning("Failed", "Error: ImagePullBackOff")
            self.told = True
            return "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}', left_s
        self.due = time.monotonic() + min(BACK_OFF_S * 2.0 ** min(self.failures, 10), BACK_OFF_MAX_S)
        self.failures, self.told = self.failures + 1, False
        normal("Pulling", f'Pulling image "{image}"')
        warning("Failed", f'Failed to pull image "{image}": {why}')
        warning("Failed", "Error: ErrImagePull")
        return "ErrImagePull", why, SHOWN_S


def _why(image: str, images: ImageTable) -> str:
    return (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": {image}: not found; '
        f"{images.why_absent(image)}"
    )
