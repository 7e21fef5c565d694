"""Texts that quantize calibrates and measures on: plan asks whether they are there, quantize reads them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.plan import DatasetFile, Datasets
from tasks.contracts.spec import ReleaseSpec

Read = Callable[[DatasetFile], Sequence[Mapping[str, Any]]]
"""The lines of a dataset that plan kept."""


@dataclass(frozen=True)
class Texts:
    """Empty where the spec names no dataset."""

    calibration: Sequence[str]
    perplexity: Sequence[str]


def texts_for(spec: ReleaseSpec, datasets: Datasets, read: Read) -> Texts:
    """As many texts to calibrate on as the spec asks for, and all to measure on.

    Raises:
        InputError: there are fewer, or a dataset has lines that hold no text.
    """
    asked, dataset = spec.quantization.calibration, datasets.calibration
    calibration = _texts(dataset, read)
    if asked is not None and dataset is not None and len(calibration) < asked.samples:
        raise InputError(
            f"calibration set {dataset.repo}/{dataset.file.path} has {len(calibration)} texts, "
            f"quantization.calibration.samples asks for {asked.samples}. Ask for fewer, or name a larger set."
        )
    return Texts(calibration[: asked.samples] if asked else (), _texts(datasets.perplexity, read))


def _texts(dataset: DatasetFile | None, read: Read) -> Sequence[str]:
    if dataset is None:
        return []
    texts = [line.get("text") for line in read(dataset)]
    usable = [text for text in texts if isinstance(text, str) and text]
    if not usable or len(usable) != len(texts):
        raise InputError(
            f"{dataset.repo}/{dataset.file.path}: {len(usable)} of {len(texts)} lines hold a text; expected "
            '{"text": str} on each line and at least one line. Mend the dataset or name another.'
        )
    return usable
