"""The flags that `replay` and `calibrate` share, and `--set`, as engine, options and settings of the source."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from flows.printing import print_note
from flows.reading.formats import AUTO, with_defaults
from flows.reading.look import look
from flows.reading.recognise import recognised
from flows.replay_site import SiteQuestion
from transforms.fleet import Engine, Source
from transforms.planner.replay.replay_options import ReplayOptions, check_options, option_kinds, with_settings
from transforms.setting_values import read_setting, value_words
from transforms.source_settings import check_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SETTINGS = tuple(f.name for f in fields(Source) if f.name not in ("format", "path", "name", "map"))
ENGINE_FLAGS = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_dtype": "kv_cache_dtype",
    "engine_version": "version",
}
"""Setting of the engine that each flag is."""


@dataclass(frozen=True)
class Asked:
    """What the flags and `--set` say together."""

    site: SiteQuestion
    options: ReplayOptions
    source_settings: Mapping[str, Any] = field(default_factory=dict)

    def source(self, form: str, path: str) -> Source:
        """The file at `path` as a source of format `form`, or of the one it is in where that is auto.

        Stamps without a zone are UTC: their distances count. InputError where no format fits the file, or two do.
        """
        source = Source(format=form, path=path, **self.source_settings)
        if form == AUTO:
            source = recognised(look(Path(path)), source)
            print_note(f"{path}: read as {source.format}")
        source = with_defaults(source)
        return source if source.timezone else replace(source, timezone="UTC")


def flags_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a command's arguments those that say what is deployed."""
    return {name: given[name] for name in (*ENGINE_FLAGS, "model", "gpu", "kv_blocks")}


def question_of(flags: Mapping[str, Any], settings: Sequence[str], **options: Any) -> Asked:
    """Deployment, options and source settings; ConfigError names a wrong key or value and the nearest known one."""
    named = {key: flags[flag] for flag, key in ENGINE_FLAGS.items() if flags[flag] is not None}
    own = [text for text in settings if text.partition("=")[0] in SETTINGS]
    others = [text for text in settings if text not in own]
    chosen = ReplayOptions(kv_blocks=flags["kv_blocks"], **options)
    check_options(chosen)
    engine, chosen, given = with_settings(Engine(**named), chosen, others, known_too=SETTINGS)
    site = SiteQuestion(flags["model"], flags["gpu"], engine, {*named, *given}, chosen.kv_blocks)
    return Asked(site, chosen, source_settings(own))


def replay_setting_kinds() -> dict[str, str]:
    """Every key of `--set` → what its value is, in words, by name."""
    hints = get_type_hints(Source)
    return dict(sorted((option_kinds() | {key: value_words(hints[key]) for key in SETTINGS}).items()))


def source_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Settings of a source in `key=value` texts; ConfigError names a wrong value."""
    values: dict[str, Any] = dict(text.partition("=")[::2] for text in settings)
    for name, kind in (("block_tokens", int), ("session_rate_per_s", float)):
        if name in values:
            values[name] = read_setting(values[name], kind, f"--set {name}={values[name]}:")
    check_settings(values, "", is_flags=True)
    return values
