"""Length distributions against truths that are known: outputs cut by a limit, tails, correlations."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from flows.models import models

SQL = {model.name: model.sql for model in models()}
ROWS, LIMIT_TOKENS = 20_000, 4096


def tables(requests: pl.DataFrame, *names: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 2, "preserve_insertion_order": False})
    connection.register("incoming", requests)
    connection.execute(
        "create table fct_requests as "
        "select *, 'w' as week, 'd' as deployment_id, 'm' as model, 't' as tenant from incoming"
    )
    connection.execute(
        f"create table dim_deployments as select 'd' as deployment_id, {LIMIT_TOKENS} as max_model_len_tokens"
    )
    for name in names:
        connection.execute(f"create table {name} as {SQL[name]}")
    return connection


def cut_outputs(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], pl.DataFrame]:
    """Prompts, outputs as they would be (logarithms correlated 0.6), and the rows a model limit leaves of them."""
    random = np.random.default_rng(seed)
    first, second = random.normal(size=(2, ROWS))
    prompts = np.exp(7 + first).astype(np.int64) + 1
    outputs = np.exp(6.5 + 0.6 * first + 0.8 * second).astype(np.int64) + 1
    is_taken = prompts < LIMIT_TOKENS - 1
    prompts, outputs = prompts[is_taken], outputs[is_taken]
    is_cut = prompts + outputs >= LIMIT_TOKENS
    rows = pl.DataFrame(
        {
            "prompt_tokens": prompts,
            "output_tokens": np.minimum(outputs, LIMIT_TOKENS - prompts),
            "status": np.where(is_cut, "length", "ok"),
            "finish_reason": np.where(is_cut, "length", "stop"),
        }
    ).with_columns(
        pl.lit(value=True).alias("is_backend"),
        pl.lit(value=False).alias("is_failed"),
        pl.lit(None, pl.Int64).alias("requested_output_tokens"),
    )
    return prompts, outputs, rows


def mean_up_to(outputs: NDArray[np.int64], support: int) -> float:
    return float(np.minimum(outputs, support).mean())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_strata_find_the_mean_of_cut_outputs_that_one_estimator_for_all_misses(seed: int) -> None:
    prompts, outputs, rows = cut_outputs(seed)
    connection = tables(rows, "fct_output_ends", "dist_prompt_strata", "dist_output_survival")
    found = connection.sql("from dist_output_survival").pl()
    assert found["requests"].min() >= 200
    assert found["requests"].sum() == len(outputs)
    estimated, true = 0.0, 0.0
    for row in found.iter_rows(named=True):
        mine = outputs[(prompts >= row["stratum_low_tokens"]) & (prompts < row["stratum_high_tokens"])]
        assert row["requests"] == len(mine)
        estimated += row["survival_mean_tokens"] * len(mine)
        true += mean_up_to(mine, row["support_tokens"]) * len(mine)
    assert estimated == pytest.approx(true, rel=0.03)

    connection.execute("update dist_prompt_strata set stratum_low_tokens = 0, stratum_high_tokens = 1000000")
    (plain,) = connection.sql(SQL["dist_output_survival"]).pl().iter_rows(named=True)
    assert plain["survival_mean_tokens"] < 0.97 * mean_up_to(outputs, plain["support_tokens"])


def test_nothing_is_said_beyond_the_longest_uncut_output() -> None:
    _prompts, _outputs, rows = cut_outputs(4)
    found = (
        tables(rows, "fct_output_ends", "dist_prompt_strata", "dist_output_survival")
        .sql("from dist_output_survival")
        .pl()
    )
    for row in found.iter_rows(named=True):
        uncut = rows.filter(
            pl.col("prompt_tokens").is_between(row["stratum_low_tokens"], row["stratum_high_tokens"], closed="left"),
            pl.col("prompt_tokens") + pl.col("output_tokens") < LIMIT_TOKENS - 1,
        )
        assert row["support_tokens"] == uncut["output_tokens"].max()
        assert row["survival_mean_tokens"] <= row["support_tokens"]
        assert (row["provenance"] == "assumed") == (row["beyond_ratio"] > 0)
    assert (found["provenance"] == "assumed").any()
    assert (found["provenance"] == "measured").any()


@pytest.mark.parametrize("shape", [0.1, 0.3])
def test_the_tail_has_the_shape_it_was_drawn_with(shape: float) -> None:
    random = np.random.default_rng(5)
    draws = random.random(200_000)
    lengths = 100 + ((draws**-shape - 1) / shape * 1000).astype(np.int64)
    logs = random.normal(6.0, 0.7, len(draws))
    rows = pl.DataFrame({"prompt_tokens": lengths, "output_tokens": np.exp(logs).astype(np.int64)})
    connection = tables(
        rows.with_columns(pl.lit(value=True).alias("is_backend")),
        "dist_length_counts",
        "dist_group_length_counts",
        "dist_group_length_tails",
        "dist_length_tails",
    )
    tails = {
        row["measure"]: row
        for row in connection.sql("from dist_length_tails where deployment_id = 'd'").pl().to_dicts()
    }
    prompt, output = tails["prompt"], tails["output"]
    assert prompt["threshold_tokens"] == np.quantile(lengths, 0.95, method="inverted_cdf")
    assert prompt["gpd_shape_factor"] == pytest.approx(shape, abs=0.04)
    assert prompt["gpd_scale_tokens"] == pytest.approx(1000 * 20**shape, rel=0.06)
    beyond = lengths[lengths > prompt["threshold_tokens"]]
    assert prompt["hill_factor"] == pytest.approx(1 / np.log(beyond / prompt["threshold_tokens"]).mean(), rel=1e-4)
    assert (output["log_mean_factor"], output["log_sd_factor"]) == (
        pytest.approx(6.0, abs=0.01),
        pytest.approx(0.7, abs=0.01),
    )


def test_correlations_are_numpys() -> None:
    random = np.random.default_rng(6)
    prompts = np.exp(random.normal(7, 1, 5000)).astype(np.int64) + 1
    outputs = np.exp(0.5 * np.log(prompts) + random.normal(2, 1, 5000)).astype(np.int64) + 1
    rows = pl.DataFrame({"prompt_tokens": prompts, "output_tokens": outputs})
    connection = tables(rows.with_columns(pl.lit(value=True).alias("is_backend")), "dist_length_correlation")
    row = connection.sql("from dist_length_correlation where deployment_id = 'd'").pl().to_dicts()[0]
    assert row["correlation_factor"] == pytest.approx(np.corrcoef(prompts, outputs)[0, 1], abs=1e-9)
    logged = np.corrcoef(np.log(prompts), np.log(outputs))[0, 1]
    assert row["log_correlation_factor"] == pytest.approx(logged, abs=1e-6)
