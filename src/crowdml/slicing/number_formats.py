"""Formats of the numbers that cross a cut: float32 as they are, bfloat16, or int8 with a scale for each row.

A message is a matrix with one column for each row of the batch. Simulation and devices use the same functions: what a
device decodes is what a simulation goes on with, bit for bit. Rounding is deterministic, so a batch that is replayed
gives the same numbers again; but a net whose sums are rounded is not the whole net any more.
"""

from __future__ import annotations

import abc
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdml.core import Registry, record
from crowdml.core.errors import MalformedMessage

Floats = npt.NDArray[np.float32]
Numbers = Literal["float32", "bfloat16", "int8"]
LARGEST = np.float32(127)
"""The largest whole number that int8 is used for: as far from zero as the smallest."""


@record
class NumberFormat(abc.ABC):
    """How numbers are written.

    Attributes:
        code: Stands for the format in the header of a message.
        size: Bytes of a number.
        scale_size: Bytes beside the numbers, for each row of a message.
        exact: Whether every number comes back as it was.
    """

    code: int
    size: int
    scale_size: int = 0
    exact: bool = False

    @abc.abstractmethod
    def encode(self, numbers: Floats) -> bytes:
        """Write a matrix of shape (numbers, rows)."""

    def decode(self, message: bytes | memoryview, numbers: int, rows: int) -> Floats:
        """Read a matrix of the given shape. Raises MalformedMessage for other lengths, and for what is not finite."""
        if len(message) != self.length(numbers, rows):
            raise MalformedMessage(
                f"{len(message)} bytes for {numbers} numbers of {rows} rows, not {self.length(numbers, rows)}"
            )
        found = self._read(message, numbers, rows)
        if not np.isfinite(found).all():
            raise MalformedMessage("a number that is not finite")
        return found

    def length(self, numbers: int, rows: int) -> int:
        """Bytes of a message."""
        return rows * (numbers * self.size + self.scale_size)

    def passed(self, numbers: Floats) -> Floats:
        """Return what arrives."""
        return self._read(self.encode(numbers), *numbers.shape)

    @abc.abstractmethod
    def _read(self, message: bytes | memoryview, numbers: int, rows: int) -> Floats: ...


@record
class Float32(NumberFormat):
    """Numbers as they are.

    >>> NUMBERS["float32"].passed(np.array([[0.1], [-2.5]], np.float32)).tolist() == [[np.float32(0.1)], [-2.5]]
    True
    """

    def encode(self, numbers: Floats) -> bytes:
        """Four bytes each, the lowest first."""
        return np.ascontiguousarray(numbers, "<f4").tobytes()

    def _read(self, message: bytes | memoryview, numbers: int, rows: int) -> Floats:
        return np.frombuffer(message, "<f4").reshape(numbers, rows).astype(np.float32, copy=False)


@record
class BFloat16(NumberFormat):
    """The upper half of a float32, rounded to the nearest, to an even one of two that are as near: eight bits count.

    >>> NUMBERS["bfloat16"].passed(np.array([[1.0, 1.003, 1.005]], np.float32)).tolist()
    [[1.0, 1.0, 1.0078125]]
    """

    def encode(self, numbers: Floats) -> bytes:
        """Two bytes each."""
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        # What is not a number has bits that rounding could carry into another.
        return np.where(np.isnan(numbers), 0x7FC0, rounded).astype("<u2").tobytes()

    def _read(self, message: bytes | memoryview, numbers: int, rows: int) -> Floats:
        bits = np.frombuffer(message, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(numbers, rows)


@record
class Int8(NumberFormat):
    """Whole numbers from -127 to 127, in units of 1/127 of the row's largest number.

    >>> NUMBERS["int8"].passed(np.array([[254.0, 0.0], [-2.6, 0.0]], np.float32)).tolist()
    [[254.0, 0.0], [-2.0, 0.0]]
    """

    def encode(self, numbers: Floats) -> bytes:
        """One byte each, behind a scale of four bytes for each row."""
        scales = np.abs(numbers).max(axis=0, initial=0).astype(np.float32) / LARGEST
        # A number so small that its scale is not a number any more is sent as zero, as is a row of zeros.
        with np.errstate(invalid="ignore", divide="ignore"):
            units = np.where(scales > 0, np.rint(numbers / scales), np.float32(0))
            whole = np.clip(units, -LARGEST, LARGEST).astype(np.int8)
        return b"".join([scales.astype("<f4").tobytes(), whole.tobytes()])

    def _read(self, message: bytes | memoryview, numbers: int, rows: int) -> Floats:
        scales = np.frombuffer(message, "<f4", rows).astype(np.float32)
        whole = np.frombuffer(message, np.int8, offset=self.scale_size * rows)
        with np.errstate(invalid="ignore", over="ignore"):
            return whole.reshape(numbers, rows).astype(np.float32) * scales


NUMBERS: Registry[NumberFormat] = Registry(
    "number format",
    {
        "float32": Float32(code=0, size=4, exact=True),
        "bfloat16": BFloat16(code=1, size=2),
        "int8": Int8(code=2, size=1, scale_size=4),
    },
)
"""Formats by name."""
