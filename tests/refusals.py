"""What is refused is refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import svmcore


def refused(message: str, call: Callable[..., Any], /, *args: Any, **words: Any) -> None:
    """The call raises an `InputError`, whose words the pattern finds."""
    with pytest.raises(svmcore.InputError, match=message):
        call(*args, **words)
