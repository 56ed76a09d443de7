"""Report of uncited rules: rules by section, ranges, exceptions."""

from pathlib import Path

import pytest

from scripts import check_docs, spec_report

# Names are concatenated here, so that the checks of this repository do not read them as citations.
DOCUMENT = "sample" + "s"
RULES = """# Rules

## 1. Notation

## 2. Links

### 2.1 Attach

* **Z-1** First.
* **Z-2** Second.

### 2.2 Credit

* **Z-3** Third.

## 3. Constants
"""


class SpecifiedRepository:
    """Repository with a specification, a code file, a test file, and a helper of tests, which does not count."""

    def __init__(self, root: Path) -> None:
        self._root = root
        (root / "docs" / "spec").mkdir(parents=True)
        (root / "docs" / "spec" / f"{DOCUMENT}.md").write_text(RULES)
        self.write("", "", "exception = []")

    def write(self, code: str, tests: str, exceptions: str = "exception = []") -> None:
        for name, text in (
            ("router/file.py", code),
            ("tests/test_file.py", tests),
            ("tests/peer.py", cite("Z-1 to Z-3")),
        ):
            (self._root / name).parent.mkdir(exist_ok=True)
            (self._root / name).write_text(text)
        (self._root / "docs" / "spec" / "uncited.toml").write_text(exceptions)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SpecifiedRepository:
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    # As in a source archive: the repository of this test has no index.
    monkeypatch.setattr(check_docs, "tracked_files", lambda *patterns: sorted(tmp_path.rglob("*.py")))
    check_docs.specification.cache_clear()
    return SpecifiedRepository(tmp_path)


def cite(ids: str) -> str:
    return f"# {DOCUMENT}.md {ids}\n"


def exception(ids: str, uncited: str, reason: str = "of no use") -> str:
    return f'[[exception]]\nrules = "{DOCUMENT}.md {ids}"\nuncited = [{uncited}]\nreason = "{reason}"\n'


def uncited(kind: str) -> list[str]:
    return [rule.id for rule in spec_report.coverage().uncited(kind)]


def test_rules_without_citation_are_reported_in_order(repository: SpecifiedRepository) -> None:
    assert uncited("code") == ["1", "Z-1", "Z-2", "Z-3", "3"]


@pytest.mark.parametrize(
    ("ids", "left"),
    [
        ("Z-1", ["1", "Z-2", "Z-3", "3"]),
        ("2.1", ["1", "Z-3", "3"]),  # the section of two rules
        ("2", ["1", "Z-1", "Z-2", "Z-3", "3"]),  # a chapter says nothing about the rules of its sections
        ("Z-1 to Z-3", ["1", "3"]),
        ("1 and 2.1 to 3", []),
    ],
)
def test_citation_covers_its_rules_and_sections(repository: SpecifiedRepository, ids: str, left: list[str]) -> None:
    repository.write(cite(ids), cite("1"))
    assert uncited("code") == left
    assert uncited("tests") == ["Z-1", "Z-2", "Z-3", "3"]


def test_report_with_all_rules_cited_or_excepted_succeeds(
    repository: SpecifiedRepository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write(cite("2.1, 2.2"), cite("Z-1 to Z-3"), exception("1, 3", '"code", "tests"'))
    assert spec_report.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].replace("|", " ").split() == [f"{DOCUMENT}.md", "5", "0", "3", "2", "0", "3", "0", "2", "0"]
    assert lines[-1] == "spec-report: 5 rules, 0 faults"


def test_report_with_uncited_rule_fails(repository: SpecifiedRepository, capsys: pytest.CaptureFixture[str]) -> None:
    repository.write(cite("2.1, 2.2"), cite("Z-1, Z-2"), exception("1, 3", '"code", "tests"'))
    assert spec_report.main([]) == 1
    assert f"{DOCUMENT}.md Z-3 (section 2.2): no citation in tests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (exception("Z-1", '"code"'), "Z-1: code cites it, so it needs no exception"),
        (exception("Z-9", '"code"'), "Z-9: no such rule"),
        (exception("3", '"code"') * 2, "3: excepted twice for code"),
        (exception("3", '"code"', ""), "3: no reason"),
    ],
)
def test_unneeded_exception_is_reported(repository: SpecifiedRepository, entry: str, fault: str) -> None:
    repository.write(cite("Z-1"), "", entry)
    faults = spec_report.excused(spec_report.coverage()).faults
    assert faults == [f"docs/spec/uncited.toml: {DOCUMENT}.md {fault}"]


def test_places_of_rule_are_printed(repository: SpecifiedRepository, capsys: pytest.CaptureFixture[str]) -> None:
    repository.write("\n" + cite("Z-2"), "")
    assert spec_report.main([f"{DOCUMENT}.md Z-2"]) == 0
    rule = f"{DOCUMENT}.md Z-2"
    assert capsys.readouterr().out == f"{rule} in code:\n    router/file.py:2\n{rule} in tests:\n    none\n"
