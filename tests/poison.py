"""New memory that nobody may read before he has written to it.

`np.empty` gives whatever the memory held. Nearly always these are zeros or old numbers, and code that reads them works. Once
in a while they are a signalling NaN, of which numpy warns. In plain Python the tests make this happen every time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SIGNALLING = {8: np.uint64(0x7FF0000000000001), 4: np.uint32(0x7F800001)}


def spoil(array: np.ndarray) -> np.ndarray:
    """Signalling NaN in every float of a new array, and integers that are no index."""
    if array.dtype.kind == "f" and array.dtype.itemsize in SIGNALLING:
        word = SIGNALLING[array.dtype.itemsize]
        array.view(word.dtype)[...] = word
    elif array.dtype.kind == "i" and array.dtype.itemsize >= 4:
        array[...] = np.iinfo(array.dtype).min // 2
    return array


def spoil_new_memory() -> None:
    """From now on, for the whole process."""
    empty, empty_like = np.empty, np.empty_like

    def spoiled(*args: Any, **keywords: Any) -> np.ndarray:
        return spoil(empty(*args, **keywords))

    def spoiled_like(*args: Any, **keywords: Any) -> np.ndarray:
        return spoil(empty_like(*args, **keywords))

    np.empty, np.empty_like = spoiled, spoiled_like
