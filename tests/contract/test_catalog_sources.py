"""Every number of the shipped catalog has its source beside it, and the catalog is as large as we say."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from flows.catalog import load_catalog
from flows.shipped import shipped
from transforms.planner.model.model_families import family_of
from transforms.planner.model.model_shape import model_shape
from transforms.planner.model.weights import weights

CATALOG = load_catalog(None)
NAMED_IN_DESIGN = {
    *("H100-SXM-80GB", "H200-SXM-141GB", "A100-SXM-80GB", "L40S-48GB", "B200-SXM-180GB", "B300-SXM-270GB"),
    *("GB200-NVL72-186GB", "GB300-NVL72-278GB", "RTX-4090-24GB", "RTX-PRO-6000-96GB", "MI300X-192GB"),
}


def test_the_catalog_has_the_gpus_models_and_families_it_promises():
    families = {family_of(model_type(config), config["architectures"][0], name) for name, config in configs().items()}
    assert len(CATALOG.gpu_names()) >= 20
    assert len(CATALOG.model_ids()) >= 45
    assert len(families) >= 15
    assert set(CATALOG.gpu_names()) >= NAMED_IN_DESIGN


def configs() -> dict[str, dict]:
    return {name: dict(CATALOG.model(name).config) for name in CATALOG.model_ids()}


def model_type(config: dict) -> str:
    return config.get("text_config", config).get("model_type", "")


@pytest.mark.parametrize("name", CATALOG.gpu_names())
def test_every_section_of_a_gpu_names_its_source(name: str):
    document = tomllib.loads(shipped("data", "catalog", "gpus", f"{name}.toml").read_text())
    for key, section in document.items():
        assert key in ("name", "vendor") or len(section["source"]) > 10, key
    gpu = CATALOG.gpu(name)
    label = int(re.search(r"(\d+)GB$", name).group(1))
    assert 0.9 * label < gpu.memory_bytes / 2**30 < 1.04 * label, "the driver reports about what the label says"


@pytest.mark.parametrize("name", CATALOG.model_ids())
def test_every_model_names_the_repository_its_facts_come_from_and_is_understood(name: str):
    path = shipped("data", "catalog", "models", f"{name.replace('/', '__')}.json")
    document = json.loads(path.read_text())
    assert document["source"] == f"Hugging Face {name} config.json"
    assert not [key for key in document if key.startswith("_")]
    assert model_shape(document, name).layers
    assert weights(document, name).total_bytes > 0


def test_every_price_is_of_a_gpu_we_know_and_is_labelled_assumed():
    prices = CATALOG.prices()
    assert prices.provenance == "assumed"
    assert set(prices.usd_per_hour) <= set(CATALOG.gpu_names())
    assert set(prices.usd_per_hour) == set(prices.sources)
