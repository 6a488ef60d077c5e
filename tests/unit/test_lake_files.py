"""The lake's Parquet files, put together from column chunks, are byte for byte those that Arrow writes in one go."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows import lake_files
from flows.lake_chunks import ENCODINGS, FEW_VALUED, METADATA, REQUESTS, chunks, options
from flows.lake_files import RequestsWriter, with_constants
from flows.lake_ids import ids_chunk
from flows.parquet_footer import footer_bytes, footer_of
from transforms.canonical import SCHEMA
from transforms.identity import id_bytes, id_texts

GROUP_ROWS = 1000
CONSTANTS = {"operation": "chat", "attempt": 1, "status": "ok", "source": "azure", "flags": [], "e2e_s": 2.5}


def rows_of(size: int, first: int) -> pl.DataFrame:
    """Rows with ids, instants, tokens, blocks and gaps."""
    number = pl.int_range(first, first + size, eager=True)
    return pl.DataFrame({
        "request_id": number.cast(pl.String),
        "arrived_at": (number * 1_000_003).cast(pl.Datetime("us", "UTC")),
        "model": (number % 3).cast(pl.String).set(number % 7 == 0, None),
        "prompt_tokens": (number * 37 % 1000).set(number % 5 == 0, None),
        "prefix_block_ids": [[n, n + 1] if n % 2 else None for n in number],
    }).cast({"prefix_block_ids": SCHEMA["prefix_block_ids"]})  # fmt: skip


def as_arrow_writes(rows: pl.DataFrame, path: Path) -> None:
    """The same rows through Arrow's writer alone."""
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in SCHEMA.items() if name not in rows.columns]
    rows = rows.with_columns(missing)
    with pq.ParquetWriter(path, REQUESTS, **options(REQUESTS.names, ENCODINGS)) as writer:
        for group in rows.iter_slices(GROUP_ROWS):
            arrays = {name: group[name].to_arrow(compat_level=pl.CompatLevel.oldest()) for name in SCHEMA}
            kinds = dict(zip(REQUESTS.names, REQUESTS.types, strict=True))
            columns = [a.dictionary_encode() if n in FEW_VALUED else a.cast(kinds[n]) for n, a in arrays.items()]
            writer.write_table(pa.table(columns, schema=REQUESTS))
        writer.add_key_value_metadata(METADATA)


@pytest.mark.parametrize("is_named", [True, False])
def test_files_are_those_of_arrow(tmp_path, monkeypatch, is_named):
    monkeypatch.setattr(lake_files, "ROW_GROUP_WEIGHT", GROUP_ROWS)
    monkeypatch.setattr(lake_files, "WEIGHT_IDS", 1e9)
    parts = [rows_of(700, 0), rows_of(1400, 700), rows_of(99, 2100)]
    writer = RequestsWriter(tmp_path / "part-0.parquet")
    for part in parts:
        given = (part, CONSTANTS) if is_named else (with_constants(part, CONSTANTS), {})
        writer.write(*given)
    writer.close()
    as_arrow_writes(with_constants(pl.concat(parts), CONSTANTS), tmp_path / "arrow.parquet")
    assert (tmp_path / "part-0.parquet").read_bytes() == (tmp_path / "arrow.parquet").read_bytes()


def test_constants_that_differ_inside_a_row_group_stay_with_their_rows(tmp_path):
    writer = RequestsWriter(tmp_path / "part-0.parquet")
    writer.write(rows_of(10, 0), CONSTANTS)
    writer.write(rows_of(10, 10), {**CONSTANTS, "status": "error", "tenant": "t"})
    writer.close()
    read = pl.read_parquet(tmp_path / "part-0.parquet")
    assert read["status"].to_list() == ["ok"] * 10 + ["error"] * 10
    assert read["tenant"].to_list() == [None] * 10 + ["t"] * 10
    assert read["operation"].unique().to_list() == ["chat"]


def test_a_footer_survives_being_read_and_written(tmp_path):
    as_arrow_writes(rows_of(50, 0), tmp_path / "arrow.parquet")
    data = (tmp_path / "arrow.parquet").read_bytes()
    assert data.endswith(footer_bytes(footer_of(data)))


@pytest.mark.parametrize("rows", [1, 127, 20_000, 20_001, 70_000])
def test_the_chunk_of_ids_is_that_of_arrow(rows: int) -> None:
    contents = pl.Series(np.random.default_rng(rows).integers(0, 2**63, rows).astype(np.uint64))
    ids = id_bytes(contents)
    schema = pa.schema([("request_id", REQUESTS.field("request_id").type)])
    assert ids_chunk(ids) == chunks(pa.table({"request_id": id_texts(ids)}, schema=schema))[0]


def test_ids_of_their_own_stand_among_those_made_of_content(tmp_path: Path) -> None:
    for own in ("0123456789abcdef-2", "0123456789abcdef-12", "chatcmpl-1"):
        rows = pl.DataFrame({
            "request_id": pl.Series([None, own, None], dtype=pl.String),
            "content_id": pl.Series([5, None, 6], dtype=pl.UInt64),
        })  # fmt: skip
        writer = RequestsWriter(tmp_path / "part-0.parquet")
        writer.write(rows)
        writer.close()
        read = pl.read_parquet(writer.paths[0], columns=["request_id"])["request_id"].to_list()
        assert read == ["0000000000000005-1", own, "0000000000000006-1"]
