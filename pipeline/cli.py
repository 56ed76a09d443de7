"""Command line `sluice pipeline VERB`. Each verb is a module of pipeline/commands."""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

import sluice.pipeline.commands
from sluice.pipeline.errors import PipelineError
from sluice.router.client.errors import ClientError


def verbs() -> list[str]:
    return sorted(found.name for found in pkgutil.iter_modules(sluice.pipeline.commands.__path__))


def load(verb: str) -> ModuleType:
    return importlib.import_module(f"sluice.pipeline.commands.{verb}")


def parser(program: str, wanted: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line; `wanted` limits it to some verbs, whose modules are imported."""
    made = argparse.ArgumentParser(
        prog=program,
        description="Data pipeline: messages to Spark tables, and table rows to messages.",
        allow_abbrev=False,
    )
    choices = made.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in verbs() if wanted is None else wanted:
        module = load(verb)
        module.add_arguments(choices.add_parser(verb, help=module.HELP, description=module.HELP, allow_abbrev=False))
    return made


def main(words: Sequence[str], program: str) -> int:
    """Run one verb. Return the exit code: 0, 1 after a failure, 2 for a wrong command line."""
    # A named verb needs only its own module. Importing the others would slow down the start.
    wanted = [words[0]] if words and words[0] in verbs() else None
    options = parser(program, wanted).parse_args(words)
    try:
        return int(load(options.verb).run(options))
    except (PipelineError, ClientError, OSError) as error:
        print(f"{program} {options.verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
