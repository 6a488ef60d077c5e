"""The JavaScript that draws the charts: Vega, Vega-Lite and Vega-Embed in one text without an outside address."""

from __future__ import annotations

import re

import vl_convert

_OUTSIDE = re.compile(r"https://(?!vega\.github\.io/schema/)[^\s\"'`)]*")


def bundle() -> str:
    """The bundle in a scope of its own, offering only `vegaEmbed`; 0.9 MB, about 2 s to make."""
    return "{" + offline(vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")) + "}"


def bundle_version() -> str:
    """Versions that name the bundle's text, e.g. "vega6.2.0-embed7.0.2-format1"."""
    return f"vega{vl_convert.get_vega_version()}-embed{vl_convert.get_vega_embed_version()}-offline1"


def offline(script: str) -> str:
    """`script` without its outside addresses (help links, the online editor); schema names stay."""
    return _OUTSIDE.sub("", script)
