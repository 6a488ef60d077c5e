"""`kvledger envelope`: capacity arithmetic on the back of an envelope, every figure with its formula and unit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption
from flows.printing import print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.planner.sizing.envelope_answers import Answer

QuantitiesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE…",
        help="Quantities with units, such as rate=50/s response=2s; without any they are listed.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Catalog id or config.json: says where the KV heads given are not its own."),
]
TextbookOption = Annotated[
    bool, typer.Option("--textbook", help="Ask for the textbook minimum of a rate and a stock: refused, both printed.")
]
_SCALES = {"bytes": 2.0**30, "byte·s": 2.0**30}
_SCALED = {"bytes": "GiB", "byte·s": "GiB·s"}


def envelope(
    quantities: QuantitiesArgument = None,
    model: ModelOption = None,
    textbook: TextbookOption = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Reckon on the back of an envelope: Little's law, compute, KV memory; units that do not match are refused."""
    from transforms.planner.sizing.envelope_answers import envelope_answers, refuse_minimum
    from transforms.planner.sizing.quantities import quantities as read_quantities

    if not quantities and not textbook:
        _print_known(is_json=json)
        return
    given = read_quantities(quantities or ())
    if textbook:
        refuse_minimum(given)
    answers = envelope_answers(given)
    note = _heads_note(given, answers, model, home) if model else None
    if json:
        figures = {one.name: {"value": one.value, "unit": one.unit, "formula": one.formula} for one in answers}
        print_json({"answers": figures, "note": note})
        return
    for one in answers:
        print_line(f"{one.name}: {_shown(one)}  ({one.formula})")
    if note:
        print_line(note)


def _print_known(*, is_json: bool) -> None:
    """Print every quantity with what it says and its units."""
    from transforms.planner.sizing.quantities import ABOUT, KINDS, UNITS, quantity_lines

    if is_json:
        known = {name: {"about": ABOUT[name], "units": list(UNITS[kind])} for name, kind in KINDS.items()}
        print_json({"quantities": known})
        return
    print_line("\n".join([*quantity_lines(), "such as: kvledger envelope rate=50/s response=2s per_gpu=25"]))


def _shown(one: Answer) -> str:
    scaled = f"{one.value:,.10g} {one.unit}"
    if one.unit in _SCALES:
        scaled += f" = {one.value / _SCALES[one.unit]:,.6g} {_SCALED[one.unit]}"
    return scaled


def _heads_note(given: Mapping[str, float], answers: list[Answer], model: str, home: Path) -> str | None:
    """What the KV heads of the model named make of the figure; None where they are those given."""
    from flows.catalog import load_catalog
    from flows.home import Home
    from transforms.planner.model.config_reading import kv_heads, read_config
    from transforms.planner.sizing.arithmetic import kv_heads_note

    held = next((one.value for one in answers if one.name == "held_bytes"), None)
    found = load_catalog(Home(home)).model(model)
    if held is None or "kv_heads" not in given:
        return None
    heads = kv_heads(read_config(found.config, found.where))
    return kv_heads_note(held, int(given["kv_heads"]), found.model_id, heads)
