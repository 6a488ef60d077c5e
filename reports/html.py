"""Pages as one self-contained HTML file: escaped everywhere, no outside address, no script but ours."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2
import orjson
from markupsafe import Markup

from reports.blocks import Chart, chart_document
from reports.printed import week_days
from reports.theme import DARK, FONT, LIGHT, css_variables, vega_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reports.page import Page

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def html(page: Page, bundle: str) -> str:
    """The whole file: `page` under our template, with `bundle` as the drawing code.

    The content policy allows exactly two scripts, by their SHA-256: data can never run, nothing can be fetched.
    """
    script = _file("page.js")
    template = _environment().get_template("page.html")
    return template.render(
        page=page,
        policy=_policy(bundle, script),
        style=Markup(_variables() + _file("page.css")),  # noqa: S704 - our own file
        bundle=Markup(bundle),  # noqa: S704 - Vega's code
        script=Markup(script),  # noqa: S704 - our own file
        config=_embedded(vega_config()),
        embed=_embedded_chart,
    )


def index_html(weeks: Sequence[str], decided: Mapping[str, str]) -> str:
    """A page that lists the reviews of `weeks`, newest first, each with its decision where one is known."""
    listed = [(week, week_days(week), f"week={week}/review.html", decided.get(week, "")) for week in weeks]
    style = Markup(_variables() + _file("page.css"))  # noqa: S704 - our own file
    return _environment().get_template("index.html").render(weeks=listed, style=style, policy=_policy())


def _embedded_chart(chart: Chart) -> Markup:
    return _embedded(chart_document(chart))


def _embedded(document: Any) -> Markup:
    """`document` as JSON that cannot leave its script element whatever the names in it."""
    encoded = orjson.dumps(document).decode()
    for character, escape in _UNSAFE.items():
        encoded = encoded.replace(character, escape)
    return Markup(encoded)  # noqa: S704 - escaped above


def _policy(*scripts: str) -> str:
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"


def _variables() -> str:
    """The palette and font as CSS variables: light, dark where the reader prefers it, light again on paper."""
    light, dark = css_variables(LIGHT), css_variables(DARK)
    return (
        f":root{{--font:{FONT};{light}}}"
        f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
        f"@media print{{:root{{{light}}}}}"
    )


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("reports"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )


def _file(name: str) -> str:
    """The text of a template that is not one: our stylesheet or script, as it stands."""
    loader = _environment().loader
    if loader is None:
        raise LookupError(name)
    return loader.get_source(_environment(), name)[0].rstrip()
