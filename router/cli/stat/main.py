"""`sluice stat`: command line, and selection of displays and routers."""

import argparse
import sys
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from sluice.router.cli.client import ManagementClient
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.stat import addresses, connections, general, links, log, memory, network, policy
from sluice.router.cli.stat.context import StatContext
from sluice.router.cli.streams import run_command
from sluice.router.cli.table import Display, JsonDisplay
from sluice.router.cli.tool import run_tool

Show = Callable[[StatContext], None]

# Mutually exclusive options: letter, name, help, display.
DISPLAYS: list[tuple[str | None, str, str, Show]] = [
    ("-g", "--general", "Show General Router Stats", general.show),
    ("-c", "--connections", "Show Connections", connections.show),
    ("-l", "--links", "Show Router Links", links.show),
    ("-n", "--nodes", "Show Router Nodes", network.show_nodes),
    ("-e", "--edge", "Show edge connections", connections.show_edge),
    ("-a", "--address", "Show Router Addresses", addresses.show),
    ("-m", "--memory", "Show Router Memory Stats", memory.show),
    ("-p", "--policy", "Show Router Policy", policy.show),
    (None, "--autolinks", "Show Auto Links", network.show_auto_links),
    (None, "--linkroutes", "Show Link Routes", network.show_link_routes),
    (None, "--vhosts", "Show Vhosts", policy.show_vhosts),
    (None, "--vhostgroups", "Show Vhost Groups", policy.show_vhost_groups),
    (None, "--vhoststats", "Show Vhost Stats", policy.show_vhost_stats),
    (None, "--log", "Show recent log entries", log.show),
]
# Displays without a heading with time and router.
_BARE: set[Show] = {policy.show_vhosts, policy.show_vhost_groups, policy.show_vhost_stats, log.show}
_ALL_ENTITIES: list[Show] = [
    links.show,
    addresses.show,
    connections.show,
    network.show_auto_links,
    network.show_link_routes,
    general.show,
    memory.show,
    policy.show,
    policy.show_vhosts,
    policy.show_vhost_stats,
]


def show_all_entities(context: StatContext) -> None:
    """Show several displays, for a report about a router."""
    for show in _ALL_ENTITIES:
        show(context)
        context.display.line()


def main(words: Sequence[str] | None = None, program: str = "qdstat") -> int:
    """Run the command; return the exit code."""
    return run_command(lambda: _main(words, program))


def _main(words: Sequence[str] | None, program: str) -> int:
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, "Display summary statistics and state of a router.")
    displays = made.add_mutually_exclusive_group(required=False)
    everything = (None, "--all-entities", "Show all router entities", show_all_entities)
    for letter, name, text, show in [*DISPLAYS, everything]:
        names = [name] if letter is None else [letter, name]
        displays.add_argument(*names, dest="show", action="store_const", const=show, help=text)
    made.set_defaults(show=general.show)
    add_target_options(made, all_routers=True)
    made.add_argument(
        "--limit", type=int, help="Limit number of output rows. Unlimited if limit is zero or if limit not specified"
    )
    shape = made.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="Render tabular output in csv format")
    if program == "qdstat":  # which has the options of 1.19
        made.set_defaults(json=False)
    else:
        shape.add_argument("--json", action="store_true", help="print tables as JSON, with a map for each row")
    add_connection_options(made)
    return made


def _run(options: argparse.Namespace) -> int:
    with ManagementClient(target(options)) as client:
        display = JsonDisplay(sys.stdout) if options.json else Display(sys.stdout, csv=options.csv)
        context = StatContext(client, display, options.verbose, options.limit or None)
        nodes = context.node_call("GET-MGMT-NODES")
        if options.all_routers and len(nodes) > 1:
            _show_routers(context, options.show, nodes)
        else:
            if isinstance(display, JsonDisplay):
                display.router = context.router()["id"]
            elif options.show not in _BARE:
                context.heading()
            options.show(context)
        if isinstance(display, JsonDisplay):
            display.finish()
    return 0


def _show_routers(context: StatContext, show: Show, nodes: list[str]) -> None:
    """Show one display for several routers; `nodes` are their management addresses (brokers-and-edge.md ED-24)."""
    if not isinstance(context.display, JsonDisplay):
        context.time()
    for node in nodes:
        address = node.removeprefix("amqp:/")
        router = address.split("/")[2]
        if isinstance(context.display, JsonDisplay):
            context.display.router = router
        else:
            context.display.line(f"Router  {router}")
        context.display.line()
        show(replace(context, at=address))
        context.display.line()


if __name__ == "__main__":
    sys.exit(main())
