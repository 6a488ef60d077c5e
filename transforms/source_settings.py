"""The settings of a source that are words of ours or time zones, checked wherever they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE_WORDS: Mapping[str, tuple[str, ...]] = {
    "time_unit": ("s", "ms", "us", "ns"),
    "file_order": ("arrival",),
    "cached_tokens": ("inside", "outside"),
    "reasoning_tokens": ("inside", "outside"),
    "zero_usage": ("missing", "zero"),
}
"""Values of the source settings that are words (DESIGN.md, Formats)."""


def check_settings(settings: Mapping[str, Any], where: str, *, is_flags: bool = False) -> None:
    """Nothing, if every setting of a source is a word it may be and names a time zone that exists.

    Else ConfigError, which begins with `where`, and names the setting as a flag of the command line if `is_flags`.
    """
    from transforms.fields.clock import zone_of  # here, so that `kv` without a fleet file does not wait for it

    at = f"{where}: " if where else ""
    for name, words in SOURCE_WORDS.items():
        value = settings.get(name)
        if value is not None and value not in words:
            said = "--" + name.replace("_", "-") if is_flags else name
            raise ConfigError(f"{at}{said} {value}: must be {' or '.join(words)}{nearest(str(value), words)}")
    zone = settings.get("timezone")
    if zone is not None and not isinstance(zone, str):
        raise ConfigError(f"{at}timezone {zone!r}: must be an IANA name such as UTC or Europe/Berlin")
    try:
        zone_of(zone)
    except ConfigError as error:
        raise ConfigError(f"{at}{error}") from None
