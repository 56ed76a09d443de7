"""Write man pages to build/man, and completion scripts to build/completion.

Options, arguments and descriptions come from the parsers of the commands, sections and attributes of sluice.conf(5)
from the schema. Exit codes, files, environment and examples are in scripts/man, one file for each command.
"""

import datetime
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.make_reference import attribute_notes, type_notes, type_text
from scripts.roff import Roff
from sluice.router.cli.completion.bash import bash_script
from sluice.router.cli.completion.fish import fish_script
from sluice.router.cli.completion.zsh import zsh_script
from sluice.router.cli.programs import programs
from sluice.router.cli.syntax import CommandSyntax, OptionGroup, OptionSyntax
from sluice.router.config.schema import SCHEMA, Attribute
from sluice.router.config.values import written
from sluice.router.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
NOTES = ROOT / "scripts" / "man"
MAN = ROOT / "build" / "man"
COMPLETION = ROOT / "build" / "completion"
# Commands under their name in Dispatch: they share the notes of the command of `sluice`.
SAME = {"qdstat": "sluice-stat", "qdmanage": "sluice-manage"}
CONFIGURATION = "sluice.conf"

Notes = Mapping[str, Any]


def page_name(command: CommandSyntax) -> str:
    """Return the name of a command's page, without its section."""
    return command.name.replace(" ", "-")


def section_of(name: str) -> int:
    """Return the manual section of a page: 8 for commands of Dispatch, which are there in Dispatch."""
    if name == CONFIGURATION:
        return 5
    return 8 if name.startswith("qd") else 1


def notes_of(command: CommandSyntax) -> Notes:
    """Return the hand-written parts of a page. A command that connects to a router also has those of `tool.toml`."""
    name = page_name(command)
    path = NOTES / f"{SAME.get(name, name)}.toml"
    own = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    if all("--bus" not in option.names for option in command.options):
        return own
    common = tomllib.loads((NOTES / "tool.toml").read_text("utf-8"))
    merged = {**common, **own}
    merged["exit"] = {**common["exit"], **own.get("exit", {})}
    merged["see"] = [*own.get("see", []), *common["see"]]
    return merged


def command_page(command: CommandSyntax) -> str:
    """Return the page of a command."""
    name = page_name(command)
    notes = notes_of(command)
    page = Roff(name, section_of(name), build_date(), VERSION)
    page.name(name, notes.get("summary") or command.summary)
    page.section("SYNOPSIS")
    page.verbatim(command.synopsis)
    page.section("DESCRIPTION")
    page.paragraph(_sentence(notes.get("description") or command.description))
    for text in notes.get("details", []):
        page.paragraph(text)
    if command.commands:
        page.section("COMMANDS")
        for each in command.commands:
            page.item(each.name.rpartition(" ")[2], f"{_sentence(each.summary)} See {page_name(each)}(1).")
    if command.arguments:
        page.section("ARGUMENTS")
        for argument in command.arguments:
            choices = f" Values: {', '.join(argument.choices)}." if argument.choices else ""
            page.item(argument.text, _sentence(argument.help) + choices)
    page.section("OPTIONS")
    _options(page, command.groups[0])
    for exclusion in command.exclusions:
        names = ", ".join(option.names[-1] for option in exclusion.options)
        page.paragraph(f"{'Exactly' if exclusion.required else 'At most'} one of these is given: {names}.")
    for group in command.groups[1:]:
        _options(page, group)
    _pairs(page, "EXIT STATUS", notes.get("exit", {}))
    _pairs(page, "FILES", notes.get("files", {}))
    _pairs(page, "ENVIRONMENT", notes.get("environment", {}))
    if examples := notes.get("examples"):
        page.section("EXAMPLES")
        for text, lines in examples.items():
            page.paragraph(text)
            program = command.name if name in SAME else f"sluice {command.name.partition(' ')[2]}"
            page.example(line.replace("{program}", program) for line in lines)
    page.section("SEE ALSO")
    page.paragraph(", ".join(_see_also(command, notes)) + ".")
    return page.text


def _options(page: Roff, group: OptionGroup) -> None:
    if group.title:
        page.subsection(f"{group.title} options")
    for option in group.options:
        page.item(option.text, _sentence(option.help) + _choices(option))


def _choices(option: OptionSyntax) -> str:
    """Return the values that an option may have, unless its tag shows them."""
    shown = not option.choices or option.value == "|".join(option.choices)
    return "" if shown else f" Values: {', '.join(option.choices)}."


def _pairs(page: Roff, title: str, pairs: Mapping[str, str]) -> None:
    if pairs:
        page.section(title)
        for tag, text in pairs.items():
            page.item(tag, text)


def _see_also(command: CommandSyntax, notes: Notes) -> Iterator[str]:
    """Yield the pages of the command above and of the notes, each once."""
    parent = page_name(command).rpartition("-")[0]
    above = [f"{parent}({section_of(parent)})"] if parent else []
    own = f"{page_name(command)}({section_of(page_name(command))})"
    yield from (name for name in dict.fromkeys([*above, *notes.get("see", [])]) if name != own)


def _sentence(text: str) -> str:
    """Return a help text as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def configuration_page() -> str:
    """Return the page of the configuration file."""
    notes = tomllib.loads((NOTES / f"{CONFIGURATION}.toml").read_text("utf-8"))
    page = Roff(CONFIGURATION, 5, build_date(), VERSION)
    page.name(f"{CONFIGURATION}, qdrouterd.conf", notes["summary"])
    page.section("DESCRIPTION")
    for text in notes["details"]:
        page.paragraph(text)
    for text, lines in notes["examples"].items():
        page.paragraph(text)
        page.example(lines)
    page.section("SECTIONS")
    for entity_type in SCHEMA.types.values():
        if entity_type.section is None:
            continue
        page.subsection(entity_type.dump_key)
        page.paragraph(" ".join([entity_type.about, *type_notes(entity_type)]))
        for attribute in entity_type.settable:
            page.item(attribute.name, _attribute(attribute))
    _pairs(page, "FILES", notes["files"])
    page.section("SEE ALSO")
    page.paragraph(", ".join(notes["see"]) + ".")
    return page.text


def _attribute(attribute: Attribute) -> str:
    facts = [type_text(attribute)]
    if attribute.required:
        facts.append("required")
    elif attribute.default not in (None, ""):
        facts.append(f"default `{written(attribute.default)}`")
    facts.append(f"changes: {attribute.change}")
    return " ".join([f"({'; '.join(facts)})", attribute.about, *attribute_notes(attribute)])


def build_date() -> str:
    """Return the date of the pages: today, or that of SOURCE_DATE_EPOCH for a reproducible build."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    today = datetime.datetime.now(datetime.UTC)
    return (datetime.datetime.fromtimestamp(int(given), datetime.UTC) if given else today).date().isoformat()


def pages() -> dict[str, str]:
    """Return all pages by file name."""
    commands = [command for program in programs() for command in program.walk()]
    made = {f"{page_name(each)}.{section_of(page_name(each))}": command_page(each) for each in commands}
    made[f"{CONFIGURATION}.5"] = configuration_page()
    made["qdrouterd.conf.5"] = f".so man5/{CONFIGURATION}.5\n"
    return made


def scripts() -> dict[str, str]:
    """Return the completion scripts by file name. Bash and fish load a script by the name of its command."""
    known = programs()
    made = {"_sluice": zsh_script(known)}
    for program in known:
        made[f"{program.name}.bash"] = bash_script((program,))
        made[f"{program.name}.fish"] = fish_script((program,))
    return made


def main(words: Sequence[str]) -> int:
    """Write all files; return the exit status."""
    for folder, files in ((MAN, pages()), (COMPLETION, scripts())):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
        print(f"{folder.relative_to(ROOT)}: {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
