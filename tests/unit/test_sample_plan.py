"""The sample's traffic before it meets an engine: published shapes, rhythm, contexts, mishaps, the second week."""

from __future__ import annotations

import numpy as np
import pytest

from transforms.sample import published
from transforms.sample.agents import plan_agents
from transforms.sample.calls import (
    ABORTED,
    CACHED,
    EMBEDDING,
    FALLBACK,
    HEALTH,
    LENGTH,
    LIMITED,
    OK,
    TIMEOUT,
    TOO_LONG,
    Plan,
    join,
    mixed,
)
from transforms.sample.rhythm import OFFICE_HOURS, OFFICE_WEEK, burst_starts, session_starts
from transforms.sample.services import AGENT, CHAT, SERVICES, SUMMARISER, Service
from transforms.sample.traffic import plan_day

SEED = 2


def week(service: Service, number: int, scale: float = 1.0) -> Plan:
    return join([plan_day(service, SEED, day, scale) for day in range(7 * number, 7 * number + 7)])


@pytest.fixture(scope="module")
def weeks() -> dict[str, tuple[Plan, Plan]]:
    return {service.name: (week(service, 0), week(service, 1)) for service in SERVICES}


def good(plan: Plan) -> np.ndarray:
    return np.isin(plan.calls.outcome, (OK, LENGTH))


@pytest.mark.parametrize(
    ("curve", "share", "value"),
    [
        (published.CHAT_PROMPT_TOKENS, 0.5, 1_020),
        (published.CHAT_OUTPUT_TOKENS, 0.9, 424),
        (published.TOOL_WAIT_S, 0.5, 8),
        (published.TOOL_WAIT_S, 0.9, 68),
        (published.TOOL_WAIT_S, 0.99, 610),
        (published.DOCUMENT_PROMPT_TOKENS, 0.9, 27_367),
        (published.AGENT_OUTPUT_TOKENS, 0.95, 1_513),
    ],
)
def test_draws_follow_the_published_quantiles(curve: published.Curve, share: float, value: float) -> None:
    drawn = published.draw(curve, np.random.default_rng(5).random(400_000))
    assert np.quantile(drawn, share) == pytest.approx(value, rel=0.03)
    assert drawn.max() <= curve[-1][1]


@pytest.mark.parametrize("name", [n for n in dir(published) if n.isupper()])
def test_every_curve_rises(name: str) -> None:
    curve = getattr(published, name)
    if isinstance(curve, tuple) and isinstance(curve[0], tuple):
        shares, values = zip(*curve, strict=True)
        assert shares[0] == 0
        assert shares[-1] == 1
        assert list(shares) == sorted(shares)
        assert list(values) == sorted(values)


def test_spread_numbers_fill_the_interval_evenly() -> None:
    numbers = published.spread(np.random.default_rng(1), 1000)
    assert np.array_equal(np.sort((numbers * 1000).astype(int)), np.arange(1000))
    assert not np.array_equal(numbers, np.sort(numbers))


def test_arrivals_follow_the_hours_and_clump() -> None:
    starts = session_starts(np.random.default_rng(1), 2, 200_000, OFFICE_HOURS, OFFICE_WEEK) - 2 * 86_400
    assert starts.min() >= 0
    assert starts.max() < 86_400
    by_hour = np.bincount((starts // 3600).astype(int), minlength=24) / len(starts)
    assert by_hour[[9, 14]].min() > 4 * by_hour[[2, 22]].max()
    minutes = np.bincount((starts[(starts > 9 * 3600) & (starts < 11 * 3600)] // 300).astype(int))[108:]
    assert minutes.var() / minutes.mean() > 5


def test_bursts_come_at_once() -> None:
    starts = burst_starts(np.random.default_rng(1), 1000.0, 400, 90.0)
    assert 300 < len(starts) < 500
    assert starts[0] >= 1000
    assert np.median(starts) < 1100


def test_identities_differ() -> None:
    seeds = [mixed(seed, np.arange(50_000)) for seed in (1, 2)]
    assert len(set(np.concatenate(seeds).tolist())) == 100_000


@pytest.mark.parametrize("service", SERVICES, ids=lambda s: s.name)
def test_prompts_and_answers_fit_the_model(weeks: dict[str, tuple[Plan, Plan]], service: Service) -> None:
    for plan in weeks[service.name]:
        calls, is_good = plan.calls, good(plan)
        assert (calls.prompt_tokens[is_good] + calls.output_tokens[is_good]).max() <= service.engine.max_model_len
        assert calls.prompt_tokens.min() > 0
        assert (calls.reuse_tokens <= calls.prompt_tokens).all()
        limit = np.array([t.limit_tokens for t in service.tenants])[plan.sessions.tenant[calls.session]]
        assert (calls.output_tokens[is_good] <= limit[is_good]).all()
        assert (calls.reasoning_tokens[is_good] <= calls.output_tokens[is_good]).all()


def test_agent_contexts_grow_and_shrink(weeks: dict[str, tuple[Plan, Plan]]) -> None:
    plan = weeks[AGENT.name][0]
    calls = plan.calls
    order = np.argsort(calls.chain, kind="stable")
    order = order[good(plan)[order]]
    same = calls.chain[order][1:] == calls.chain[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    grows = calls.prompt_tokens[after] > calls.prompt_tokens[before]
    assert 0.95 < grows.mean() < 0.995
    assert (
        calls.prompt_tokens[after][grows] >= calls.prompt_tokens[before][grows] + calls.output_tokens[before][grows]
    ).all()
    compacted = after[~grows]
    assert (calls.prompt_tokens[compacted] < 40_000).all()
    assert (calls.reuse_tokens[compacted] == 0).all()


def test_tool_results_answer_tool_calls(weeks: dict[str, tuple[Plan, Plan]]) -> None:
    plan = weeks[AGENT.name][0]
    calls = plan.calls
    main = np.flatnonzero(good(plan) & (plan.chains.agent[calls.chain] == 0))
    main = main[np.argsort(calls.chain[main], kind="stable")]
    same = calls.chain[main][1:] == calls.chain[main][:-1]
    asked, carried = calls.tool_calls[main[:-1][same]], calls.tool_results[main[1:][same]]
    assert (carried[carried > 0] == asked[carried > 0]).all()
    assert 0.75 < (asked > 0).mean() < 0.9
    assert 0.1 < (asked[asked > 0] > 1).mean() < 0.2


def test_subagents_belong_to_a_turn_of_their_session(weeks: dict[str, tuple[Plan, Plan]]) -> None:
    plan = weeks[AGENT.name][0]
    children = np.flatnonzero(plan.chains.parent >= 0)
    assert len(children) > 300
    first_of = dict(zip(*np.unique(plan.calls.chain, return_index=True), strict=True))
    for child in children.tolist():
        parent = plan.chains.parent[child]
        assert plan.calls.session[first_of[child]] == plan.calls.session[parent]
        assert plan.calls.tool_calls[parent] >= 1
        assert good(plan)[parent]


@pytest.mark.parametrize("service", SERVICES, ids=lambda s: s.name)
def test_retries_share_the_call_and_count_up(weeks: dict[str, tuple[Plan, Plan]], service: Service) -> None:
    calls = weeks[service.name][0].calls
    retried = np.flatnonzero((calls.attempt > 1) & good(weeks[service.name][0]))
    assert len(retried) > 100
    for row in retried.tolist():
        first = row - int(calls.attempt[row]) + 1
        assert (calls.uid[first : row + 1] == calls.uid[row]).all()
        assert calls.attempt[first : row + 1].tolist() == list(range(1, int(calls.attempt[row]) + 1))
        assert (calls.outcome[first:row] != OK).all()
    assert len(np.unique(calls.uid)) < len(calls)
    assert len(np.unique(np.stack([calls.uid.astype(np.int64), calls.attempt]), axis=1).T) == len(calls)


def test_everything_that_can_happen_happens(weeks: dict[str, tuple[Plan, Plan]]) -> None:
    seen = {name: set(np.unique(plans[0].calls.outcome).tolist()) for name, plans in weeks.items()}
    assert {OK, LENGTH, TIMEOUT, LIMITED, TOO_LONG, ABORTED, CACHED, EMBEDDING, HEALTH} <= seen[CHAT.name]
    assert {OK, LENGTH, TIMEOUT, LIMITED, ABORTED, HEALTH} <= seen[AGENT.name]
    assert {OK, LENGTH, TIMEOUT, LIMITED, TOO_LONG, CACHED, FALLBACK, HEALTH} <= seen[SUMMARISER.name]
    failed = [np.isin(p.calls.outcome, (2, 3, TIMEOUT, LIMITED, ABORTED)).mean() for ps in weeks.values() for p in ps]
    assert np.mean(failed) == pytest.approx(published.FAILED_RATIO, rel=0.35)


def test_the_second_week_differs_as_documented(weeks: dict[str, tuple[Plan, Plan]]) -> None:
    roots = {n: [np.count_nonzero(p.chains.parent < 0) for p in plans] for n, plans in weeks.items()}
    assert roots[CHAT.name][1] / roots[CHAT.name][0] == pytest.approx(0.95, abs=0.03)
    assert roots[AGENT.name][1] / roots[AGENT.name][0] == pytest.approx(1.18, abs=0.07)
    prompts = {n: [p.calls.prompt_tokens[good(p)].mean() for p in plans] for n, plans in weeks.items()}
    assert prompts[CHAT.name][1] / prompts[CHAT.name][0] == pytest.approx(1.2, abs=0.05)
    assert prompts[AGENT.name][1] / prompts[AGENT.name][0] == pytest.approx(1.1, abs=0.04)
    legal = [np.mean(p.sessions.tenant[p.calls.session] == 2) for p in weeks[SUMMARISER.name]]
    assert legal[0] < 0.1
    assert legal[1] > 0.19


def test_tenants_are_skewed(weeks: dict[str, tuple[Plan, Plan]]) -> None:
    for service in (CHAT, AGENT):
        shares = np.bincount(weeks[service.name][0].sessions.tenant.clip(0), minlength=len(service.tenants))
        assert shares.max() > 3 * np.sort(shares)[0]


def test_days_are_independent_of_how_many_are_made() -> None:
    alone = plan_day(CHAT, SEED, 3, 0.02).calls
    again = plan_day(CHAT, SEED, 3, 0.02).calls
    other = plan_day(CHAT, SEED + 1, 3, 0.02).calls
    assert np.array_equal(alone.uid, again.uid)
    assert not set(alone.uid.tolist()) & set(other.uid.tolist())


def test_a_day_without_sessions_is_a_plan_too() -> None:
    empty = plan_agents(np.random.default_rng(1), 7, 0, 1e-9)
    assert len(empty.calls) == 0
    assert set(plan_day(AGENT, SEED, 5, 1e-9).calls.outcome.tolist()) == {HEALTH}
