"""Syntax of all commands: complete help texts, and what the syntax says about special options."""

from __future__ import annotations

import os

import pytest

from sluice.router.cli import main
from sluice.router.cli.completion.values import FROM_ROUTER, complete_argument, complete_option
from sluice.router.cli.programs import programs
from sluice.router.cli.syntax import CommandSyntax

COMMANDS = {command.name: command for program in programs() for command in program.walk()}


@pytest.fixture(params=list(COMMANDS))
def command(request: pytest.FixtureRequest) -> CommandSyntax:
    return COMMANDS[request.param]


def test_programs_include_each_tool_and_no_hidden_command() -> None:
    assert {f"sluice {name}" for name in main.TOOLS} <= set(COMMANDS)
    assert {"sluice", "qdrouterd", "qdstat", "qdmanage"} <= set(COMMANDS)
    assert {"sluice pipeline land", "sluice policy explain"} <= set(COMMANDS)
    assert not {f"sluice {name}" for name in main.HIDDEN} & set(COMMANDS)


def test_commands_have_description_and_help_of_options(command: CommandSyntax) -> None:
    assert command.description
    assert [option.text for option in command.options if not option.help] == []
    assert [argument.name for argument in command.arguments if not argument.help] == []
    assert [each.name for each in command.commands if not each.summary] == []


def test_help_texts_are_equal_on_all_machines(command: CommandSyntax) -> None:
    """Defaults such as the name of this host would change the man pages of a build."""
    host = os.uname().nodename
    assert [option.text for option in command.options if f"({host})" in option.help] == []


def test_synopsis_contains_required_options_and_arguments() -> None:
    assert COMMANDS["sluice passwd"].synopsis == "sluice passwd [OPTIONS] FILE USER"
    assert COMMANDS["sluice check"].synopsis == "sluice check [OPTIONS] FILE..."
    land = COMMANDS["sluice pipeline land"].synopsis
    assert land == "sluice pipeline land [OPTIONS] --path DIR (--address ADDRESS... | --tap NAME|PATTERN)"
    query = COMMANDS["sluice pipeline query"].synopsis
    assert query == "sluice pipeline query [OPTIONS] --path DIR (--out TABLE | --show [N])"
    assert COMMANDS["qdmanage"].synopsis == "qdmanage [OPTIONS] OPERATION [ARGUMENT...]"


def test_options_that_exclude_each_other_are_known() -> None:
    pairs = [[option.names[0] for option in each.options] for each in COMMANDS["sluice reload"].exclusions]
    assert pairs == [["--plan", "--undo"], ["-r", "-d"]]


def test_names_of_router_are_completed_only_by_commands_that_connect() -> None:
    explain, run = COMMANDS["sluice explain"], COMMANDS["sluice pipeline query"]
    assert complete_argument(explain, explain.arguments[0]).source == "addresses"
    assert [each for each in run.options if complete_option(run, each).source in FROM_ROUTER] == []


def test_operations_of_qdmanage_are_words_in_lower_case() -> None:
    assert "get-mgmt-nodes" in complete_argument(COMMANDS["qdmanage"], COMMANDS["qdmanage"].arguments[0]).words
