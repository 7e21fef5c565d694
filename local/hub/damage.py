"""Corrupts tensors of a safetensors file in place, reproducibly. It reads no other format."""

import json
import struct
import zlib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from local.hub.declaration import Damage, FixtureError

STORED_AS = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}  # numpy has no bfloat16: its bits are handled here


def damage_file(file: Path, damage: Damage) -> None:
    """Rewrite the tensors of `file` that `damage.tensor` matches, in the same layout.

    Format: an 8-byte little-endian header length, a JSON header, then raw tensors
    (https://huggingface.co/docs/safetensors, format section).

    Raises:
        FixtureError: no tensor matches, or one is not stored as BF16, F16 or F32.
    """
    with file.open("rb") as stream:
        (header_bytes,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(header_bytes))
    names = [name for name in sorted(header) if name != "__metadata__" and fnmatchcase(name, damage.tensor)]
    if not names:
        raise FixtureError(
            f"{file.name}: damage.tensor {damage.tensor!r} matches none of its {len(header)} entries",
            remedy="Correct the name or the glob.",
        )
    for name in names:
        entry = header[name]
        if entry["dtype"] not in STORED_AS:
            raise FixtureError(
                f"{file.name}: type of tensor {name}", found=entry["dtype"], expected=f"one of {', '.join(STORED_AS)}"
            )
        stored = np.memmap(
            file,
            dtype=STORED_AS[entry["dtype"]],
            mode="r+",
            offset=8 + header_bytes + entry["data_offsets"][0],
            shape=tuple(entry["shape"]),
        )
        stored[...] = _encoded(_damaged(_decoded(stored), damage, name), stored.dtype)
        stored.flush()


def _damaged(values: NDArray[np.float32], damage: Damage, name: str) -> NDArray[np.float32]:
    generator = np.random.default_rng([damage.seed, zlib.crc32(name.encode())])
    if damage.kind == "noise":
        noise = generator.standard_normal(values.shape, dtype=np.float32)
        return values + noise * np.float32(damage.amount * values.std())
    if damage.kind == "scale":
        return values * np.float32(damage.amount)
    rows = values.reshape(values.shape[0] if values.ndim else 1, -1)
    rows[generator.choice(len(rows), max(1, round(damage.amount * len(rows))), replace=False)] = 0
    return rows.reshape(values.shape)


def _decoded(stored: NDArray[Any]) -> NDArray[np.float32]:
    if stored.dtype == np.uint16:
        bits: NDArray[np.uint32] = np.left_shift(stored, 16, dtype=np.uint32)
        return bits.view(np.float32)
    return stored.astype(np.float32)


def _encoded(values: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype == np.uint16:
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)  # round half to even, as torch does
    return values.astype(dtype)
