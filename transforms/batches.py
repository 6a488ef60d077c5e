"""What passes between the reader and a log format: batches of raw records in, canonical columns and rejects out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from transforms.fleet import Source


@dataclass(frozen=True)
class Batch:
    """Raw records of one file, in file order.

    A record is one JSON text: a line, an element of a JSON array, a whole JSON document, or a CSV row turned into
    a JSON object of texts (empty cells are null). `positions` are byte offsets in the decompressed stream, or the
    element's or row's number in arrays and CSV-as-records. `carry` lives from batch to batch of one file part: state
    a format keeps (a clock's last stamp, a header line) goes there.
    """

    source_file: str
    lines: Sequence[bytes]
    positions: Sequence[int]
    carry: dict[str, Any] = field(default_factory=dict)
    typed: pl.DataFrame | None = None
    """Where the format declares a SHAPE: the records that are exactly of it, as columns with `source_position`; they
    are not among `lines`."""


@dataclass(frozen=True)
class Table:
    """Cells of one file as text columns: what the columnar reader hands to `mapped` and its kin.

    `cells` has one String column a field (NULL where absent). Under `json` a cell is the JSON text of the value
    (`"13"` and `13` differ); otherwise it is the bare text of a CSV cell, or Int64 where the field is one of the
    mapping's `whole_fields` and every cell was a whole number. `flags` is a List(String) per row.
    """

    source_file: str
    cells: pl.DataFrame
    positions: pl.Series
    is_json: bool
    flags: pl.Series | None = None
    carry: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reject:
    """A record that cannot become a row: where it stands and why, in fixed words that quote nothing of it."""

    position: int
    reason: str


@dataclass(frozen=True)
class Parsed:
    """One batch made canonical.

    `rows` has any of the canonical columns (absent ones become NULL) and `source_position`, one row an attempt; it may
    also have `ended_at` and `first_token_at` (timestamps, us, UTC), `record_id` and `precedence` (see
    transforms.canonical). `ignored` counts records that are no requests (headers, tool spans, user turns);
    `duplicates` counts records that repeat a request already in `rows`.
    """

    rows: pl.DataFrame
    rejects: Sequence[Reject] = ()
    ignored: int = 0
    duplicates: int = 0


@dataclass(frozen=True)
class Head:
    """The first records of a file, for recognising its format.

    `records` are the decoded JSON objects among the first lines (for a JSON document: the document or the first
    elements of its array), `columns` the header of a CSV or the columns of a Parquet file, `text` the first lines.
    """

    name: str
    records: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()
    text: Sequence[str] = ()
    is_document: bool = False


class Format(Protocol):
    """A module of transforms/sources: one log format with logic of its own."""

    FORMAT: str
    """Its name on the command line."""

    UNIT: str
    """"line": every record stands alone, so files are split, streamed and resumed where they ended.
    "file": all records of a file are needed at once; the file is read anew whenever it changed.
    "stream": records come in batches, in file order, and what a format keeps in `carry` runs through all of them: the
    file is never split, and read anew whenever it changed. Such a format may have `rest(carry, source) -> Parsed`: the
    rows that were still open when the file ended, each with its arrival, and no rejects.
    A format whose files cannot always be told from another's may have `takes(head) -> bool`: whether a file that others
    claim and `recognise` does not is read all the same when the user names this format."""

    DEFAULTS: Mapping[str, Any]
    """Source settings that hold where the user gives none."""

    def recognise(self, head: Head) -> str | None:
        """Why the file looks like this format, in a few words; None where it does not."""

    def canonicalise(self, batch: Batch, source: Source) -> Parsed:
        """The batch's canonical rows, rejects and counts under the settings of `source`."""
