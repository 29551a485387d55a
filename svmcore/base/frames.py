"""Tables as pandas data frames. The only importer of pandas."""

from __future__ import annotations

from typing import Any

from svmcore._errors import MissingExtraError


def frame(columns: dict[str, Any]) -> Any:
    """A DataFrame of these columns."""
    try:
        import pandas as pd  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtraError("to_frame needs pandas: pip install pandas") from None
    return pd.DataFrame(columns)
