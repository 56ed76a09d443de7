"""Man pages and the reference of commands, made from the parsers and the schema."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import make_commands, make_man
from scripts.roff import escaped, markdown
from sluice.router.cli.programs import programs
from sluice.router.config.schema import SCHEMA

PAGES = make_man.pages()
#: Pages with text of their own; the others refer to one of them.
WRITTEN = sorted(name for name, text in PAGES.items() if not text.startswith(".so "))
COMMANDS = [command for program in programs() for command in program.walk()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("man")
    for name, text in PAGES.items():
        (made / name).write_text(text)
    return made


def rendered(path: Path, width: int = 80) -> str:
    """Return a page as text, as `man` shows it."""
    if shutil.which("man") is None or shutil.which("groff") is None:
        pytest.skip("man or groff is not installed (Debian packages man-db and groff-base)")
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "MANWIDTH": str(width),
        "MANPAGER": "cat",
        "MAN_KEEP_FORMATTING": "",
    }
    done = subprocess.run(
        ["man", "--warnings", "-P", "cat", "-l", str(path)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r".\x08", "", done.stdout)


def test_pages_exist_for_each_command_and_the_configuration() -> None:
    assert {"sluice.1", "sluice-pipeline-land.1", "qdrouterd.8", "qdstat.8", "qdmanage.8", "sluice.conf.5"} <= set(
        PAGES
    )
    assert len(PAGES) == len(COMMANDS) + 2


def test_notes_belong_to_a_page() -> None:
    known = {make_man.page_name(command) for command in COMMANDS} | {make_man.CONFIGURATION, "tool"}
    assert {path.stem for path in make_man.NOTES.glob("*.toml")} <= known


def test_see_also_names_pages_that_exist() -> None:
    known = {f"{name.rpartition('.')[0]}({name.rpartition('.')[2]})" for name in PAGES}
    for name in WRITTEN:
        line = PAGES[name].replace("\\-", "-").rpartition(".SH SEE ALSO\n")[2]
        assert set(re.findall(r"[\w.-]+\(\d\)", line)) <= known, name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_page_of_command_has_each_option_and_exit_codes(command) -> None:
    name = make_man.page_name(command)
    text = PAGES[f"{name}.{make_man.section_of(name)}"]
    for option in command.options:
        assert f"\\fB{escaped(option.text)}\\fR" in text
    assert "Values: ." not in text
    pipeline = command.name.startswith("sluice pipeline ")
    assert ".SH EXIT STATUS" in text or pipeline
    assert re.search(rf"^\.SH NAME\n{re.escape(escaped(name))} \\- \S", text, re.MULTILINE)


def test_configuration_page_has_each_section_and_attribute() -> None:
    text = PAGES["sluice.conf.5"]
    for entity_type in SCHEMA.types.values():
        if entity_type.section is not None:
            assert f".SS {escaped(entity_type.dump_key)}\n" in text
            for attribute in entity_type.settable:
                assert f"\\fB{escaped(attribute.name)}\\fR" in text


@pytest.mark.starts
@pytest.mark.parametrize("name", ["sluice.1", "sluice-explain.1", "qdrouterd.8", "sluice.conf.5"])
def test_page_is_rendered_without_warnings_at_80_columns(folder: Path, name: str) -> None:
    text = rendered(folder / name)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\\" not in text.replace("\\x1b", "")
    assert re.search(r"^NAME\n +[\w.-]+", text, re.MULTILINE)


@pytest.mark.starts
def test_pages_have_no_faults_for_mandoc(folder: Path) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed (Debian package mandoc)")
    command = ["mandoc", "-Tlint", "-Wwarning", *(str(folder / name) for name in WRITTEN)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_command_page_matches_parsers() -> None:
    assert make_commands.PAGE.read_text() == make_commands.page(), "run python -m scripts.make_commands"
    assert make_commands.undescribed(make_commands.COMMANDS.read_text()) == []


def test_date_of_pages_is_that_of_a_reproducible_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert make_man.build_date() == "1970-01-02"


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        (".dot", "\\&.dot"),
        ("'quote", "\\(aqquote"),
        ("a \\ b", "a \\e b"),
        ("`-v` and **all**", "\\fB\\-v\\fR and \\fBall\\fR"),
        ("see [tools](tools.md#x)", "see tools"),
        ("é…", "\\[u00E9]\\[u2026]"),
    ],
)
def test_markdown_becomes_roff_without_requests(text: str, roff: str) -> None:
    assert markdown(text) == roff
