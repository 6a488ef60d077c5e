"""Logs from and reports to object stores, through a real S3 server that is slow, refuses and breaks off."""

from __future__ import annotations

import gzip
import json
import os
from datetime import timedelta
from http.client import HTTPConnection

import obstore
import pytest
from ingesting import Here, ingested, lake_hash
from s3_server import s3_server
from serving import place_trace

from flows import object_store
from flows.checks.surroundings import surroundings
from flows.execution import PlainStages, is_transient
from flows.fetching import matches, objects_of
from flows.fleet import load_fleet
from flows.home import open_home
from flows.object_store import is_url, open_store, read_secrets
from flows.publishing import publish_files
from flows.records import read_record, write_record
from flows.review import check_request, review_week
from transforms.errors import ConfigError, InputError, StoreError

pytestmark = pytest.mark.s3
HURRIED = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=20), "base": 2.0},
}
NUMBERS = iter(range(1000))


@pytest.fixture(scope="module")
def faults():
    with s3_server() as proxy:
        yield proxy


@pytest.fixture
def bucket(faults, monkeypatch):
    """URL of an empty bucket, the environment that reaches it, and retries that do not wait long."""
    faults.refuse_first, faults.break_first, faults.delay_s = 0, 0, 0.0
    faults.seen.clear()
    faults.refused.clear()
    for name, value in {
        "AWS_ENDPOINT": faults.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "RETRY", HURRIED)
    name = f"bucket{next(NUMBERS)}"
    direct = HTTPConnection("127.0.0.1", faults.behind)
    signed = "AWS4-HMAC-SHA256 Credential=key/20261129/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    direct.request("PUT", f"/{name}", headers={"Authorization": signed})
    answer = direct.getresponse()
    assert (answer.status, answer.read() is not None) == (200, True)
    direct.close()
    return f"s3://{name}"


def line(n):
    request = {"timestamp": 1000 * n, "input_length": 10 + n, "output_length": 3, "hash_ids": [n]}
    return json.dumps(request) + "\n"


def contents():
    """Name -> bytes of logs: plain, packed, in a folder, and one that is not asked for."""
    return {
        "logs/a.jsonl": "".join(map(line, range(50))).encode(),
        "logs/b.jsonl.gz": gzip.compress("".join(map(line, range(50, 90))).encode(), mtime=0),
        "logs/deep/c.jsonl": "".join(map(line, range(200, 210))).encode(),
        "other/d.jsonl": b"no log",
        "logs/.hidden.jsonl": b"no log",
    }


def fill(url, files):
    store = open_store(url)
    for key, data in files.items():
        obstore.put(store, key, data)


def test_the_same_bytes_as_from_files_through_503s_delays_and_broken_bodies(bucket, faults, tmp_path):
    fill(bucket, contents())
    for key, data in contents().items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(data)
    ingested(tmp_path / "near", tmp_path / "logs", form="mooncake")
    (tmp_path / "far").mkdir()
    faults.refuse_first, faults.break_first, faults.delay_s = 2, 1, 0.02
    faults.seen.clear()
    result = ingested(tmp_path / "far", f"{bucket}/logs", form="mooncake")
    assert [(file.source_file, file.loaded) for file in result.files] == [
        ("a.jsonl", 50),
        ("b.jsonl.gz", 40),
        ("deep/c.jsonl", 10),
    ]
    assert lake_hash(tmp_path / "far") == lake_hash(tmp_path / "near")
    assert faults.seen["GET"] >= 9
    assert sum(faults.refused.values()) >= 6


def test_what_did_not_change_is_not_fetched_and_what_grew_is(bucket, faults, tmp_path):
    fill(bucket, contents())
    ingested(tmp_path / "home", f"{bucket}/logs/*.jsonl*", form="mooncake")
    faults.seen.clear()
    again = ingested(tmp_path / "home", f"{bucket}/logs/*.jsonl*", form="mooncake")
    assert [file.status for file in again.files] == ["unchanged", "unchanged"]
    assert faults.seen["GET"] == 0
    fill(bucket, {"logs/a.jsonl": contents()["logs/a.jsonl"] + line(400).encode()})
    grown = ingested(tmp_path / "home", f"{bucket}/logs/*.jsonl*", form="mooncake")
    assert [(file.source_file, file.loaded) for file in grown.files] == [("a.jsonl", 1), ("b.jsonl.gz", 0)]
    assert faults.seen["GET"] == 1
    obstore.delete(open_store(bucket), "logs/b.jsonl.gz")
    left = ingested(tmp_path / "home", f"{bucket}/logs/*.jsonl*", form="mooncake")
    assert [file.source_file for file in left.files] == ["a.jsonl"]


def test_one_object_by_its_key(bucket, tmp_path):
    fill(bucket, contents())
    (only,) = ingested(tmp_path / "home", f"{bucket}/logs/deep/c.jsonl", form="mooncake").files
    assert (only.source_file, only.loaded) == ("c.jsonl", 10)
    (listed,) = object_store.list_objects(f"{bucket}/logs/deep")
    assert object_store.head_object(f"{bucket}/logs/deep/c.jsonl") == listed
    assert listed.etag.isalnum()


def test_a_store_that_stays_away_is_one_line_and_tried_again_later(bucket, faults, tmp_path):
    fill(bucket, contents())
    faults.refuse_first = 10**6
    with pytest.raises(StoreError, match=r"the store does not answer .*; try again later") as refused:
        ingested(tmp_path / "home", f"{bucket}/logs", form="mooncake")
    assert "\n" not in str(refused.value)
    assert is_transient(refused.value)
    assert not (tmp_path / "home" / "lake").exists()


def test_no_such_object_or_bucket(bucket, tmp_path):
    fill(bucket, contents())
    for url in (f"{bucket}/nowhere", f"{bucket}/logs/*.csv"):
        with pytest.raises(InputError, match=r"no such object; check bucket"):
            ingested(tmp_path / "home", url, form="mooncake")


def test_a_review_publishes_what_others_read_and_only_what_changed(bucket, faults, tmp_path):
    fleet = place_trace(tmp_path)
    fill(bucket, {f"in/{path.name}": path.read_bytes() for path in (tmp_path / "logs").iterdir()})
    text = fleet.read_text().replace('"logs/*.jsonl"', f'"{bucket}/in/*.jsonl"')
    fleet.write_text(text + f'[publish]\nto = "{bucket}/out"\nlake = true\n')
    home = open_home(tmp_path / "home")
    loaded = load_fleet(fleet, home)
    check_request(home, loaded, None)
    faults.refuse_first, faults.delay_s = 1, 0.001
    reviewed = review_week(PlainStages(Here()), home, loaded, None)
    faults.refuse_first = 0
    assert reviewed.link == f"{bucket}/out/reports/week=2026-W47/review.html"
    sent = {meta["path"]: meta for batch in obstore.list(open_store(f"{bucket}/out")) for meta in batch}
    assert {"reports/index.html", "warehouse/kvledger.duckdb", "marts/mart_decision.parquet"} <= sent.keys()
    assert {key for key in sent if key.startswith("lake/requests")} == {
        "lake/requests/date=2026-11-16/part-0.parquet",
        "lake/requests/date=2026-11-17/part-0.parquet",
    }
    got = obstore.get(open_store(f"{bucket}/out"), "reports/week=2026-W47/review.html").bytes()
    assert bytes(got) == (home.reports / "week=2026-W47" / "review.html").read_bytes()
    faults.seen.clear()
    review_week(PlainStages(Here()), home, loaded, None)
    assert faults.seen["PUT"] + faults.seen["POST"] == 0
    checks = {check.name: check for check in surroundings(home, loaded)}
    assert checks[f"source {bucket}/in/*.jsonl"].text.startswith("2 files")
    fill(bucket, {"out/marts/mart_of_an_older_kvledger.parquet": b"x"})
    (record,) = home.staging.glob("published-*.json")
    write_record(record, read_record(record) | {"marts/mart_of_an_older_kvledger.parquet": "sent"})
    publish_files(home, loaded.fleet.publish, "2026-W47")
    assert {meta["path"] for batch in obstore.list(open_store(f"{bucket}/out")) for meta in batch} == sent.keys()


@pytest.mark.parametrize(
    ("key", "pattern", "wanted"),
    [("a.jsonl", "*.jsonl", True), ("d/a.jsonl", "*.jsonl", False), ("d/e/a.jsonl", "**/*.jsonl", True),
     ("a.jsonl", "**/a.*", True), ("d/a.csv", "d/[a-c].csv", True), ("d", "d/*", False)],
)  # fmt: skip
def test_patterns_go_part_by_part(key, pattern, wanted):
    assert matches(key, pattern) is wanted


def test_secrets_stand_in_a_file_of_the_owner_alone_and_never_in_an_address(tmp_path, monkeypatch):
    home = open_home(tmp_path)
    (tmp_path / "store.env").write_text("# ours\nKVLEDGER_TEST_VALUE=s\n")
    (tmp_path / "store.env").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_secrets(home)
    (tmp_path / "store.env").chmod(0o600)
    monkeypatch.setenv("KVLEDGER_TEST_VALUE", "")
    monkeypatch.delenv("KVLEDGER_TEST_VALUE")
    read_secrets(home)
    assert os.environ["KVLEDGER_TEST_VALUE"] == "s"
    with pytest.raises(ConfigError) as refused:
        open_store("s3://key:hush@bucket/logs")
    assert "hush" not in str(refused.value)
    assert [is_url(path) for path in ("s3://b/x", "gs://b", "az://c/x", "logs/s3", "file://x")] == [True] * 3 + [
        False
    ] * 2


def test_a_key_that_would_leave_our_folder_is_refused(monkeypatch):
    from flows import fetching
    from flows.object_store import Stored

    monkeypatch.setattr(fetching, "list_objects", lambda _: [Stored("../../etc/passwd", 1, "x")])
    with pytest.raises(InputError, match="no relative path"):
        objects_of("s3://bucket/logs/**")
