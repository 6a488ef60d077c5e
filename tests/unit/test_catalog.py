from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flows.catalog import load_catalog
from flows.home import Home
from transforms.catalog import parse_gpu, parse_prices
from transforms.errors import CatalogError

GPU = {
    "name": "X",
    "memory": {"memory_bytes": 100, "source": "a log"},
    "peak": {"bf16_flop_per_s": 1e12, "source": "a datasheet"},
    "bandwidth": {"bandwidth_bytes_per_s": 1e9, "source": "a datasheet"},
}
GPU_TEXT = """
name = "{name}"
[memory]
memory_bytes = {memory_bytes}
source = "our own log"
[peak]
bf16_flop_per_s = 1.0e12
source = "our own measurement"
[bandwidth]
bandwidth_bytes_per_s = 1.0e9
source = "our own measurement"
"""


def test_a_gpu_carries_its_facts_and_where_they_come_from():
    gpu = load_catalog(None).gpu("H100-SXM-80GB")
    assert gpu.memory_bytes == round(79.18 * 2**30)
    assert gpu.peak("bf16") == pytest.approx(989.4e12)
    assert gpu.bandwidth_bytes_per_s == pytest.approx(3.35e12)
    assert set(gpu.sources) == {"memory", "peak", "bandwidth", "link", "node", "architecture", "host"}


def test_the_4090_is_as_the_measured_run_saw_it():
    assert load_catalog(None).gpu("RTX-4090-24GB").memory_bytes == 25_250_627_584


def test_a_dtype_without_a_peak_names_those_that_have_one():
    with pytest.raises(CatalogError, match=r"A100-SXM-80GB has no peak for 'fp8'.*bf16, fp16"):
        load_catalog(None).gpu("A100-SXM-80GB").peak("fp8")


@pytest.mark.parametrize(
    ("name", "words"),
    [("H100-SXM-8GB", "did you mean 'H100-SXM-80GB'"), ("nonsense", "RTX-4090-24GB")],
)
def test_an_unknown_gpu_names_the_nearest_and_the_known(name: str, words: str):
    with pytest.raises(CatalogError, match=words) as caught:
        load_catalog(None).gpu(name)
    assert "\n" not in str(caught.value)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(CatalogError, match="did you mean 'Qwen/Qwen3-32B'"):
        load_catalog(None).model("Qwen/Qwen3-32")


def test_a_model_may_be_a_config_of_ones_own(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for name in ("config.json", str(tmp_path), str(tmp_path / "config.json")):
        model = load_catalog(None).model(name, base=tmp_path)
        assert model.config == {"model_type": "llama"}
        assert model.source.endswith("config.json")


@pytest.mark.parametrize("text", ["{", "[1]", '"words"'])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, text: str):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CatalogError, match=r"config\.json"):
        load_catalog(None).model(str(tmp_path / "config.json"))


def test_a_config_that_is_not_there_is_refused():
    with pytest.raises(CatalogError, match="does not exist"):
        load_catalog(None).model("nowhere/config.json")


def test_the_homes_catalog_lies_over_the_shipped_one_and_only_what_is_asked_is_read(tmp_path: Path):
    folder = tmp_path / "catalog" / "gpus"
    folder.mkdir(parents=True)
    (folder / "H100-SXM-80GB.toml").write_text(GPU_TEXT.format(name="H100-SXM-80GB", memory_bytes=7))
    (folder / "MINE.toml").write_text(GPU_TEXT.format(name="MINE", memory_bytes=8))
    (folder / "BROKEN.toml").write_text("not toml at all")
    (folder / "MISNAMED.toml").write_text(GPU_TEXT.format(name="OTHER", memory_bytes=8))
    (tmp_path / "catalog" / "prices.toml").write_text(
        '[usd_per_hour.MINE]\nusd_per_hour = 0.5\nsource = "invoice"\n'
        '[usd_per_hour.L40S-48GB]\nusd_per_hour = 0.6\nsource = "invoice"\n'
    )
    catalog = load_catalog(Home(tmp_path))
    assert (catalog.gpu("H100-SXM-80GB").memory_bytes, catalog.gpu("MINE").memory_bytes) == (7, 8)
    assert catalog.gpu("L40S-48GB").memory_bytes > 40 * 2**30
    assert "MINE" in catalog.gpu_names()
    prices = catalog.prices()
    assert (prices.of("MINE"), prices.of("L40S-48GB")) == (0.5, 0.6)
    assert prices.of("H100-SXM-80GB") == load_catalog(None).prices().of("H100-SXM-80GB")
    assert prices.of("L40S-48GB", {"L40S-48GB": 9.0}) == 9.0
    assert prices.of("T4-16GB") is None
    with pytest.raises(CatalogError, match=r"BROKEN\.toml cannot be read as TOML"):
        catalog.gpu("BROKEN")
    with pytest.raises(CatalogError, match="calls itself 'OTHER'"):
        catalog.gpu("MISNAMED")


def test_the_digest_changes_with_what_it_covers_alone(tmp_path: Path):
    folder = tmp_path / "catalog" / "gpus"
    folder.mkdir(parents=True)
    shipped, home = load_catalog(None), load_catalog(Home(tmp_path))
    asked = (["L40S-48GB"], ["Qwen/Qwen3-32B"])
    assert shipped.sha256(*asked) == home.sha256(*asked)
    (folder / "MINE.toml").write_text(GPU_TEXT.format(name="MINE", memory_bytes=8))
    assert shipped.sha256(*asked) == home.sha256(*asked)
    (folder / "L40S-48GB.toml").write_text(GPU_TEXT.format(name="L40S-48GB", memory_bytes=8))
    assert shipped.sha256(*asked) != home.sha256(*asked)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory": {"memory_bytes": 100}}, "'memory.source'"),
        ({"memory": {"memory_bytes": -1, "source": "x"}}, "above zero"),
        ({"memory": {"memory_byte": 1, "source": "x"}}, "unknown key 'memory_byte'; did you mean 'memory_bytes'"),
        ({"peak": {"source": "x"}}, "names no dtype"),
        ({"node": {"gpus_per_node": 8, "is_whole_node": 1, "source": "x"}}, "true or false"),
        ({"memry": {}}, "did you mean 'memory'"),
        ({"name": ""}, "'name' must be text"),
    ],
)
def test_a_gpu_that_is_not_well_described_is_refused(change: dict, words: str):
    with pytest.raises(CatalogError, match=words):
        parse_gpu({**GPU, **change}, "x.toml")


def test_a_gpu_without_a_needed_section_is_refused():
    with pytest.raises(CatalogError, match=r"section \[bandwidth\] is missing"):
        parse_gpu({key: value for key, value in GPU.items() if key != "bandwidth"}, "x.toml")


def test_a_price_needs_a_source():
    with pytest.raises(CatalogError, match="'source'"):
        parse_prices({"usd_per_hour": {"X": {"usd_per_hour": 1.0}}}, "prices.toml")


def test_looking_up_a_gpu_and_its_memory_needs_no_heavy_package():
    code = (
        "import sys, flows.catalog, transforms.planner.memory.budget\n"
        "heavy = {'numpy', 'polars', 'duckdb', 'pyarrow', 'numba', 'prefect', 'altair'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_named_by_a_description_of_a_cluster_is_the_catalogs(tmp_path: Path):
    cluster = tmp_path / "config.json"
    cluster.write_text('{"nodes": [{"instances": [{"model_name": "meta-llama/Llama-3.1-8B", "tp_size": 1}]}]}')
    assert load_catalog(None).model(str(cluster)).model_id == "meta-llama/Llama-3.1-8B"
    cluster = tmp_path / "other.json"
    cluster.write_text('{"nodes": [{"instances": [{"model_name": "meta-llama/Llama-3.1-9B"}]}]}')
    with pytest.raises(CatalogError, match=r"Llama-3.1-9B' is not in the catalog; did you mean"):
        load_catalog(None).model(str(cluster))
