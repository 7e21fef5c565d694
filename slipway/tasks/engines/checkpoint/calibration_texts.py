"""Texts that quantize calibrates and measures on: plan checks that they exist, quantize reads them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import DatasetFile, Datasets

Read = Callable[[DatasetFile], Sequence[Mapping[str, Any]]]
"""Reads the lines of a dataset that plan stored."""


@dataclass(frozen=True)
class Texts:
    """Texts of the spec's datasets; empty where it names none."""

    calibration: Sequence[str] = ()
    perplexity: Sequence[str] = ()


def texts_for(spec: ReleaseSpec, datasets: Datasets, read: Read) -> Texts:
    """The number of calibration texts that the spec sets, and all texts to measure on.

    Raises:
        InputError: there are fewer, or a dataset has lines that hold no text.
    """
    settings, dataset = spec.quantization.calibration, datasets.calibration
    calibration = _texts(dataset, read)
    if settings is not None and dataset is not None and len(calibration) < settings.samples:
        raise InputError(
            f"calibration set {dataset.repo}/{dataset.file.path} is too small for quantization.calibration.samples",
            found=f"{len(calibration)} texts",
            expected=str(settings.samples),
            remedy="Lower quantization.calibration.samples, or name a larger set.",
        )
    return Texts(calibration[: settings.samples] if settings else (), _texts(datasets.perplexity, read))


def _texts(dataset: DatasetFile | None, read: Read) -> Sequence[str]:
    if dataset is None:
        return []
    texts = [line.get("text") for line in read(dataset)]
    usable = [text for text in texts if isinstance(text, str) and text]
    if not usable or len(usable) != len(texts):
        raise InputError(
            f"{dataset.repo}/{dataset.file.path} has lines without a text, or no lines",
            found=f"a text on {len(usable)} of {len(texts)} lines",
            expected='{"text": str} on each line',
            remedy="Correct the dataset, or name another.",
        )
    return usable
