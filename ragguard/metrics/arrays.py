"""The conventions of all metrics: how arguments are read and results are returned.

The last axis is the list, a boolean mask marks its real entries, what is undefined is nan, and what
cannot be right is an `InvalidInput` that names the argument. This file knows no metric.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragguard.errors import InvalidInput

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.intp]
Entry = TypeVar("Entry", bound=np.generic)
Item = TypeVar("Item")
Mask: TypeAlias = ArrayLike | None
"""True for each real entry of an argument, False for padding; None: all entries are real."""
Value: TypeAlias = Any
"""A float for one list, an array of float64 for many; the shape of the arguments decides."""

EXCESS = 1e-9
"""How far a number may lie outside its bounds by rounding; such a number is clipped, others are refused."""
HUGE = 1e100
"""The bound of numbers without another bound; sums and squares of such numbers are finite."""
MOST_DRAWS = 1_000_000
"""The most draws of a bootstrap, some minutes of work; nothing ends a call that was asked for billions."""


class Padded(NamedTuple):
    """Lists of different lengths as one array, with the mask of its real entries."""

    values: Floats
    mask: Booleans


class Aggregate(NamedTuple):
    """The mean over queries, and how many queries had no value."""

    mean: float
    stderr: float
    counted: int
    skipped: int


def pad(lists: Sequence[ArrayLike], fill: float = 0.0) -> Padded:
    """Returns one array and its mask from lists of different lengths (of numbers, or of rows of one width)."""
    rows = [read(f"lists[{i}]", row) for i, row in enumerate(items("lists", lists))]
    widths = {row.shape[1:] for row in rows if row.size}
    if len(widths) > 1:
        raise InvalidInput("lists", sorted(widths), "lists whose rows all have one shape")
    shape = widths.pop() if widths else ()
    lengths = np.array([len(row) for row in rows], dtype=np.intp)
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    values = np.full((*mask.shape, *shape), parameter("fill", fill))
    if mask.any():
        values[mask] = np.concatenate([row.reshape(-1, *shape) for row in rows])
    return Padded(values, mask)


def aggregate(values: ArrayLike) -> Aggregate:
    """Returns the mean of one metric over queries; queries without a value are left out and counted."""
    found = numbers("values", values)
    missing = np.isnan(found)
    kept = read("values", found[~missing])
    n = kept.size
    mean = float(kept.mean()) if n else float("nan")
    stderr = float(kept.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Aggregate(mean, stderr, n, int(missing.sum()))


def read(
    argument: str,
    values: ArrayLike,
    *,
    low: float = -HUGE,
    high: float = HUGE,
    axes: int = 1,
    mask: Mask = None,
    mask_name: str = "mask",
) -> Floats:
    """Returns the argument as float64 within its bounds; a list has one axis, a table two, a number none.

    Entries the mask leaves out are set to the allowed number nearest to 0, whatever they were.
    """
    array = numbers(argument, values)
    if array.ndim < axes:
        kinds = {1: "a list of numbers, or many of them", 2: "a table (rows, columns), or many of them"}
        raise InvalidInput(argument, values, kinds[axes])
    if mask is not None:
        shape = array.shape if axes < 2 else array.shape[:-1]
        real = boolean(mask_name, mask, shape)
        array = np.where(real if axes < 2 else real[..., None], array, min(max(0.0, low), high))
    if array.size and not (
        low <= np.minimum.reduce(array, axis=None) and np.maximum.reduce(array, axis=None) <= high
    ):
        refused = ~((array >= low - EXCESS) & (array <= high + EXCESS))
        if refused.any():
            raise _refusal(argument, array, refused, _interval(low, high))
        array = np.clip(array, low, high)
    return array


def whole(argument: str, values: Floats, allowed: str) -> Integers:
    """Returns numbers, already read, as integers; refuses others."""
    integers = values.astype(np.intp)
    broken = integers != values
    if broken.any():
        raise _refusal(argument, values, broken, allowed)
    return integers


def boolean(argument: str, values: ArrayLike, shape: tuple[int, ...] | None = None) -> Booleans:
    """Returns the argument as booleans; refuses another shape than the given one."""
    try:
        array = np.asarray(values)
    except Exception as error:  # an object in it may raise anything when NumPy looks at it
        raise InvalidInput(argument, values, "booleans in a regular array") from error
    if array.dtype != np.bool_ and array.size:
        raise InvalidInput(argument, values, "an array of booleans (True = a real entry)")
    if shape is not None and array.shape != shape:
        raise InvalidInput(f"{argument}.shape", array.shape, f"{shape}, the shape of what it marks")
    return array.astype(np.bool_, copy=False)


def parameter(argument: str, value: float, low: float = -HUGE, high: float = HUGE) -> float:
    """Returns one number; refuses what lies outside its bounds."""
    if not isinstance(value, int | float | np.integer | np.floating) or not low <= value <= high:
        raise InvalidInput(argument, value, _interval(low, high))
    return float(value)


def count(argument: str, value: int, low: int = 1, high: int | None = None) -> int:
    """Returns one integer, such as a cutoff; refuses booleans and what lies outside its bounds."""
    try:
        number = operator.index(value)
    except Exception:  # noqa: BLE001 - whatever its `__index__` raises, it is no integer
        number = low - 1
    too_large = number.bit_length() > 1023 if high is None else number > high
    if isinstance(value, bool) or number < low or too_large:
        allowed = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
        raise InvalidInput(argument, value, allowed)
    return number


def items(argument: str, values: Iterable[Item]) -> list[Item]:
    """Returns the items of a list, a tuple or another iterable."""
    try:
        return list(values)
    except Exception as error:
        raise InvalidInput(argument, values, "a list") from error


def fit(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that arguments share; names the first that does not fit those before it.

    A number goes with a list, and a list with many lists; but lists of one call have one length, and a list of one is
    not stretched to the others.
    """
    common: tuple[int, ...] = ()
    for argument, shape in shapes.items():
        axes = min(len(common), len(shape))
        if axes and common[-axes:] != shape[-axes:]:
            raise InvalidInput(
                f"{argument}.shape", shape, f"a shape that fits {common}: lists of one call have one length"
            )
        common = max(common, shape, key=len)
    return common


def same(**arrays: Floats) -> None:
    """Refuses lists that do not have one shape."""
    (first, reference), *others = arrays.items()
    for argument, array in others:
        if array.shape != reference.shape:
            raise InvalidInput(f"{argument}.shape", array.shape, f"{reference.shape}, as {first} has")


def at_least(argument: str, value: ArrayLike, least: Floats | Integers, what: str) -> Floats:
    """Returns numbers that fit others, which count `what`, and are none of them less than these."""
    known = read(argument, value, low=0, axes=0)
    fit(**{what: least.shape, argument: known.shape})
    if np.any(known < least):
        raise InvalidInput(argument, value, f"at least {what}, {least}")
    return known


def lengths(values: NDArray[np.generic], mask: Mask) -> int | Integers:
    """Returns how many real entries each list has; `values` were read with this mask."""
    if mask is None:
        return int(values.shape[-1])
    return np.asarray(np.count_nonzero(np.asarray(mask), axis=-1), dtype=np.intp)


def front(array: NDArray[Entry], mask: Mask, axis: int = -1) -> NDArray[Entry]:
    """Returns the array with the real entries of each list first, in their order, so that padding has no rank."""
    if mask is None:
        return array
    real = np.asarray(mask, dtype=bool)
    if not (real[..., 1:] & ~real[..., :-1]).any():
        return array
    order = np.argsort(~real, axis=-1, kind="stable")
    return np.take_along_axis(array, order if axis == -1 else order[..., None], axis=axis)


def blocks(n: int, width: int, budget: int = 1 << 20) -> Iterator[slice]:
    """Yields slices of n rows, each of about `budget` numbers where a row takes `width` of them."""
    step = max(1, budget // max(1, width))
    return (slice(start, start + step) for start in range(0, n, step))


def ratio(top: Value | Integers, bottom: Value | int | Integers) -> Value:
    """Returns top / bottom, and nan where bottom is 0."""
    if isinstance(bottom, int | float) and bottom:
        # One number to divide by needs no array machinery; np.float64 is a float too.
        return plain(top / bottom)
    result = np.full(np.broadcast_shapes(np.shape(top), np.shape(bottom)), np.nan)
    return plain(np.divide(top, bottom, out=result, where=np.asarray(bottom) != 0))


def plain(value: Value) -> Value:
    """Returns a Python float for a single number, and the array itself for more."""
    return float(value) if np.ndim(value) == 0 else value


@lru_cache(maxsize=256)
def discounts(n: int) -> Floats:
    """Returns 1 / log2(rank + 1) for the ranks from 1 to n."""
    values: Floats = 1 / np.log2(np.arange(2, n + 2))
    values.flags.writeable = False
    return values


def ranks(values: Floats) -> Floats:
    """Returns the ranks of a list, from 1; equal values have their mean rank."""
    _, which, times = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(times) - (times - 1) / 2)[which])


def numbers(argument: str, values: ArrayLike) -> Floats:
    """Returns the argument as a regular array of float64, in which nan and infinity are allowed."""
    try:
        array = np.asarray(values)
    except Exception as error:  # an object in it may raise anything when NumPy looks at it
        raise InvalidInput(
            argument, values, "numbers in a regular array; `pad` makes one of lists of different lengths"
        ) from error
    if array.dtype == np.float64:
        return array
    if array.dtype.kind not in "fiub":
        raise InvalidInput(argument, values, "numbers")
    return array.astype(np.float64)


def _refusal(argument: str, array: Floats, refused: Booleans, allowed: str) -> InvalidInput:
    """Returns the error about the first entry that is refused, with its position."""
    where = tuple(map(int, np.unravel_index(int(refused.argmax()), refused.shape)))
    item = f"{argument}[{', '.join(map(str, where))}]" if where else argument
    return InvalidInput(item, array[where].item(), allowed)


def _interval(low: float, high: float) -> str:
    if low == -HUGE and high == HUGE:
        return "a finite number"
    if high == HUGE:
        return f"a finite number of at least {low:g}"
    return f"a finite number in [{low:g}, {high:g}]"
