"""The command line: `kvledger COMMAND`; every command is one function of flows/commands."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from flows.commands.build import build
from flows.commands.calibrate import calibrate
from flows.commands.dictionary import dictionary
from flows.commands.doctor import doctor
from flows.commands.envelope import envelope
from flows.commands.export import export
from flows.commands.ingest import ingest
from flows.commands.kv import kv
from flows.commands.plan import plan
from flows.commands.predict import predict
from flows.commands.query import query
from flows.commands.replay import replay
from flows.commands.review import review
from flows.commands.sample import sample
from flows.commands.serve import serve
from flows.commands.whatif import whatif
from flows.log import start_logging
from flows.printing import PIPE_CLOSED, print_error, print_line, stdout_trouble
from transforms.errors import KvledgerError

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Root of what typer raises on a wrong command line; typer has no public name for it."""

SQL_COMMENT = "No such option: -- "
"""What typer says of an SQL text that begins with a comment."""
COMMENT_HINT = "SQL that begins with a comment goes in with --file FILE"

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended (128 + SIGINT)."""

STDOUT_ERRNOS = (errno.ENOSPC, errno.EPIPE, errno.EBADF)
"""What typer's own help meets on a stdout that is full or closed; such an error names no file."""

app = typer.Typer(
    name="kvledger",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    review,
    ingest,
    build,
    plan,
    whatif,
    kv,
    replay,
    predict,
    calibrate,
    query,
    dictionary,
    envelope,
    export,
    sample,
    doctor,
    serve,
):
    app.command()(command)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print_line(f"kvledger {version('kvledger')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say only errors on stderr.")] = False,
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Production LLM request logs in, weekly capacity review out: KV residency, KV·time and GPU counts."""
    del show_version
    start_logging(verbose=verbose, quiet=quiet)
    if context.invoked_subcommand is None:
        print_line(context.get_help())


def main() -> None:
    """Run the command line; expected failures print one line and exit with 2, bugs keep their traceback."""
    try:
        code = app(standalone_mode=False)
    except KvledgerError as error:
        print_error(str(error))
        sys.exit(2)
    except USAGE_ERROR as error:
        said = getattr(error, "format_message", error.__str__)()
        hint = COMMENT_HINT if SQL_COMMENT in said else "see kvledger --help"
        print_error(f"{said}; {hint}")
        sys.exit(2)
    except OSError as error:
        if error.filename is not None or error.errno not in STDOUT_ERRNOS:
            raise
        code = _unwritten(error)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer answers Ctrl-C inside a command with this code, and says nothing
        print_error("interrupted; nothing half-written, run it again")
    sys.exit(code if isinstance(code, int) else 0)


def _unwritten(error: OSError) -> int:
    """Exit code of a run whose help or version could not be printed."""
    trouble = stdout_trouble(error)
    if isinstance(trouble, SystemExit):
        return PIPE_CLOSED
    print_error(str(trouble))
    return 2


if __name__ == "__main__":
    main()
