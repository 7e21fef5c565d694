"""Images that cannot be pulled, with the states, messages and back-off of the kubelet.

https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/images/image_manager.go.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from .images import ImageTable
from .resources import Object

SHOWN_S = 1.0  # how long a failed attempt is shown before its back-off
BACK_OFF_S = 10.0
BACK_OFF_MAX_S = 300.0
Tell = Callable[[str, str], None]


@dataclass
class Pull:
    """The attempts to pull the image of one container."""

    container: Object
    failures: int = 0
    due: float = 0.0
    told: bool = False

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
    known = ", ".join(sorted(images))
    return (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": {image}: not found; '
        f"this cluster knows only {known} ({images.file})"
    )
