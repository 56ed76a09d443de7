"""`sluice policy explain`: show what the policy of a file or of a running router allows a user, and by which line."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from sluice.router.cli.client import NODE, ManagementClient
from sluice.router.cli.default_config import CONFIG_HELP, default_config
from sluice.router.cli.options import add_connection_options, add_target_options, target
from sluice.router.cli.output import one_line, to_json
from sluice.router.cli.tool import run_tool
from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load
from sluice.router.policy.question import PolicyQuestion, QuestionError

DESCRIPTION: Final = (
    "Explain whether the policy allows a connection and its links. The policy is that of a configuration file and its "
    "policyDir, for which no router has to run, or with --url the one in force in a router. The exit code is 0 if all "
    "is allowed, 3 if not, 1 if the file is invalid, 4 if no router answers."
)
DENIED: Final = 3  # exit code
_BAD_FILE: Final = 1
_ASKED: Final = ("user", "host", "vhost", "listener", "groups", "send", "receive", "anonymous", "dynamic")


def main(words: Sequence[str] | None = None, program: str = "sluice policy") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    if options.url is not None:
        options.bus = options.url
        return run_tool(lambda: _show(_of_router(options), options), f"{program} explain", options)
    try:
        found = [finding.as_map() for finding in _question(options).answer(load(options.config))]
    except (ConfigError, QuestionError) as error:
        for each in error.errors if isinstance(error, ConfigError) else [error]:
            print(each, file=sys.stderr)
        return _BAD_FILE
    return _show(found, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=program, description="Show what the policy allows.")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    asked = commands.add_parser("explain", help="allowed or denied, and why", description=DESCRIPTION)
    source = asked.add_mutually_exclusive_group()
    source.add_argument("-c", "--config", metavar="FILE", default=default_config(), help=CONFIG_HELP)
    source.add_argument("--url", metavar="URL", help="ask the router at [amqp[s]://][user[:pass]@]host[:port]")
    user = asked.add_mutually_exclusive_group()
    user.add_argument("--user", default="anonymous", help="user name of the connection (%(default)s)")
    user.add_argument("--no-user", dest="user", action="store_const", const=None, help="connection without a user name")
    asked.add_argument(
        "--group", metavar="NAME", dest="groups", action="append", default=[], help="group in the user's token"
    )
    asked.add_argument("--vhost", default="", help="host name in the client's open; default: none")
    asked.add_argument("--host", default="127.0.0.1", help="address from which the client connects (%(default)s)")
    asked.add_argument("--listener", metavar="NAME", help="listener to which it connects; its policyVhost applies")
    asked.add_argument("--send", metavar="ADDRESS", action="append", default=[], help="may it send to ADDRESS?")
    asked.add_argument("--receive", metavar="ADDRESS", action="append", default=[], help="may it receive from ADDRESS?")
    asked.add_argument("--anonymous", action="store_true", help="may it attach a sender without an address?")
    asked.add_argument("--dynamic", action="store_true", help="may it attach a receiver with a dynamic address?")
    add_target_options(asked)
    add_connection_options(asked, bus=False)
    asked.add_argument("--json", action="store_true", help="print the answer as JSON")
    return made


def _question(options: argparse.Namespace) -> PolicyQuestion:
    return PolicyQuestion.of({name: getattr(options, name) for name in _ASKED})


def _of_router(options: argparse.Namespace) -> list[dict[str, Any]]:
    with ManagementClient(target(options)) as client:
        found: list[dict[str, Any]] = client.call("EXPLAIN-POLICY", NODE, _question(options).as_map())
    return found


def _show(findings: list[dict[str, Any]], options: argparse.Namespace) -> int:
    if options.json:
        print(to_json(findings, 2))
    else:
        for finding in findings:
            print(one_line(f"{'allowed' if finding['allowed'] else 'DENIED'}: {finding['what']}"))
            print(one_line(f"  {finding['why']} ({_place(finding['file'], finding['line'])})"))
    return 0 if all(finding["allowed"] for finding in findings) else DENIED


def _place(file: str | None, line: int | None) -> str:
    if file is None:
        return "made by management"
    return file if line is None else f"{file}:{line}"


if __name__ == "__main__":
    sys.exit(main())
