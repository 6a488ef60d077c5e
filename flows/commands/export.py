"""`kvledger export`: a week's traffic as a file for load generators and simulators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, HomeOption, JsonOption, WeekOption
from flows.home import Home
from flows.printing import print_json, print_line, print_note
from transforms.errors import ConfigError, nearest

FORMATS = ("mooncake", "aiperf-trace", "vllm-timed-trace", "vidur")

FormatOption = Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")]
OutputOption = Annotated[Path, typer.Option("--output", help="File to write.")]
DeploymentOption = Annotated[str | None, typer.Option("--deployment", help="Only the requests of this deployment.")]

BlockOption = Annotated[
    int | None, typer.Option("--block-tokens", min=1, help="Tokens of a block of hash_ids; mooncake 512, vllm 16.")
]


def export(
    form: FormatOption,
    output: OutputOption,
    week: WeekOption = None,
    deployment: DeploymentOption = None,
    block_tokens: BlockOption = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Write a week's requests (arrivals, lengths, sessions, prefix blocks) for Mooncake, AIPerf, vLLM or Vidur."""
    if form not in FORMATS:
        raise ConfigError(f"--format {form}: must be one of {', '.join(FORMATS)}{nearest(form, FORMATS)}")
    from flows.export import Asked
    from flows.export import export as export_traffic
    from flows.progress import progress

    asked = Asked(form, week, deployment, block_tokens)
    done = export_traffic(Home(home), output, asked, progress)
    if done.left_out:
        print_note(f"{done.left_out:,} requests of {done.week} are left out: their prompt or output length is unknown")
    if json:
        print_json(
            {
                "format": form,
                "week": done.week,
                "requests": done.requests,
                "sessions": done.sessions,
                "left_out": done.left_out,
                "block_tokens": done.block_tokens,
                "origin": done.origin.isoformat().replace("+00:00", "Z"),
                "output": str(output),
            }
        )
        return
    print_line(
        f"{output}: {done.requests:,} requests and {done.sessions:,} sessions of {done.week} as {form}; "
        f"stamps count from {done.origin:%Y-%m-%dT%H:%M:%SZ}"
    )
