"""Tables as DataFrames, for those who have pandas: an extra, imported when it is first used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> DataFrame:
    """Rows as a DataFrame; with ``columns``, of these, also where there is no row."""
    try:
        import pandas
    except ImportError:
        raise HeadwiseError("pandas is not installed: pip install 'headwise[pandas]'") from None
    return pandas.DataFrame([dict(row) for row in rows], columns=None if columns is None else list(columns))
