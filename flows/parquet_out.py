"""Parquet for whoever has no DuckDB 2: the answer to a query, or all marts, written whole or not at all."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from flows.query import BATCH_ROWS, reading, unique_names
from flows.whole_file import whole_file
from transforms.errors import ConfigError, HomeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb

    from flows.home import Home

MARTS = "select table_name from duckdb_tables() where starts_with(table_name, 'mart_') order by table_name"


def write_answer(home: Home, sql: str, path: Path, version: int | None, limit: int | None) -> tuple[int, bool]:
    """Rows of the answer to `sql` put into the Parquet file `path`, and whether it has more than `limit`."""
    with whole_file(path) as aside, reading(home, sql, version) as connection:
        return write_relation(connection.sql(sql), aside, limit)


def write_marts(home: Home, folder: Path, version: int | None) -> dict[str, int]:
    """Rows of each mart, put into `folder`/<mart>.parquet; the folder is there with all of them or as it was.

    An earlier export there is replaced; ConfigError where `folder` holds anything else, HomeError where it cannot be
    written.
    """
    _check_replaceable(folder)
    folder = folder.resolve()  # where a link leads, the link stays
    aside, old = (folder.with_name(f".{folder.name}.{os.getpid()}{end}") for end in ("", ".old"))
    try:
        aside.mkdir(parents=True)
        with reading(home, MARTS, version) as connection:
            names = [str(row[0]) for row in connection.execute(MARTS).fetchall()]
            marts = {name: connection.sql(f"from {name}") for name in names}
            rows = {name: write_relation(mart, aside / f"{name}.parquet")[0] for name, mart in marts.items()}
        if folder.exists():
            folder.replace(old)
        aside.replace(folder)
    except OSError as error:
        raise HomeError(f"{folder} cannot be written ({error.strerror or error}); name another folder") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return rows


def _check_replaceable(folder: Path) -> None:
    others = [path.name for path in folder.iterdir() if not _is_mart(path)] if folder.is_dir() else []
    is_file = folder.exists() and not folder.is_dir()
    if others or is_file or folder.resolve() == folder.cwd():
        what = "a file" if is_file else f"a folder that holds {others[0]}" if others else "the folder you are in"
        raise ConfigError(f"--export-marts {folder}: is {what}; name a new folder or one of an earlier export")


def _is_mart(path: Path) -> bool:
    """Whether an earlier export may have written `path`: nobody else's Parquet goes."""
    return path.match("mart_*.parquet") and path.is_file() and not path.is_symlink()


def write_relation(
    relation: duckdb.DuckDBPyRelation, path: Path, limit: int | None = None, group_rows: int = BATCH_ROWS
) -> tuple[int, bool]:
    """Rows of `relation` written to the Parquet file `path`, and whether it has more than `limit`."""
    reader = relation.to_arrow_reader(group_rows)
    names = unique_names(reader.schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _renamed(reader, schema):
            taken = batch if limit is None else batch.slice(0, limit - rows)
            writer.write_batch(taken)
            rows += len(taken)
            if len(taken) < len(batch):
                return rows, True
    return rows, False


def _renamed(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
