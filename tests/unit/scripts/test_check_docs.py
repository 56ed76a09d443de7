"""Checks of documentation: broken links and broken citations, without false alarms."""

from pathlib import Path

import pytest

from scripts import check_docs


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# A title, `quoted`\n\n```\n# no heading\n```\n")
    return tmp_path / "page.md"


@pytest.mark.parametrize(
    "text",
    [
        "[file](other.md)",
        "[heading](other.md#a-title-quoted)",
        "# Own part\n[here](#own-part)",
        "[elsewhere](https://example.org/nothing.md)",
        "`[code](nothing.md)`",
        "```\n[block](nothing.md)\n```",
    ],
)
def test_valid_links_pass(page: Path, text: str) -> None:
    page.write_text(text)
    assert check_docs.broken_links(page) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[file](nothing.md)", "page.md: no such file: nothing.md"),
        ("[heading](other.md#no-heading)", "page.md: no such heading: other.md#no-heading"),
        ("[here](#own-part)", "page.md: no such heading: #own-part"),
    ],
)
def test_broken_links_are_reported(page: Path, text: str, problem: str) -> None:
    page.write_text(text)
    assert check_docs.broken_links(page) == [problem]


# -- Citations. The names are concatenated here, so that the check of this repository does not read them as citations.

SEMANTICS = "routing-" + "semantics"
ROUTER = "inter-" + "router"
RULES = """# Rules

## 2. Links

### 2.6 Sessions [W]

* **Z-16a** An answer. See §2.6 and Z-17.
* **Z-17** Another.

```
## 9. no heading
```
"""


@pytest.fixture
def source(page: Path, tmp_path: Path) -> Path:
    (tmp_path / "docs" / "spec").mkdir(parents=True)
    (tmp_path / "docs" / "spec" / f"{SEMANTICS}.md").write_text(RULES)
    (tmp_path / "docs" / "spec" / f"{ROUTER}.md").write_text("# Protocol\n\n## 7. Link state\n\n### 7.3 Ages\n")
    check_docs.specification.cache_clear()
    return tmp_path / "source.py"


@pytest.mark.parametrize(
    "text",
    [
        f'"""Attach ({SEMANTICS}.md Z-16a, 2.6; {ROUTER}.md 7.3)."""',
        f"# Ages, see {SEMANTICS}.md 2 and Z-17, {ROUTER}.md 7 to 7.3.",
        f"# broken in two: {SEMANTICS}.md\n# Z-17",
        f"docs/spec/{SEMANTICS}.md says more",
        f"the {ROUTER} connections, 2 of them, SHA-256, UTF-8 and AMQP 1.0 part 2, 2.5.6",
    ],
)
def test_valid_citations_pass(source: Path, text: str) -> None:
    source.write_text(text)
    assert check_docs.broken_citations(source) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"#\n# {SEMANTICS}.md Z-18", f"source.py:2: no such rule: {SEMANTICS}.md Z-18"),
        (f"({SEMANTICS}.md 2, 2.7)", f"source.py:1: no such rule: {SEMANTICS}.md 2.7"),
        (f"({ROUTER}.md 2.6 to 7.3)", f"source.py:1: no such rule: {ROUTER}.md 2.6"),
        (f"({ROUTER}.md Z-17)", f"source.py:1: no such rule: {ROUTER}.md Z-17"),
        (f"({SEMANTICS}.md 9)", f"source.py:1: no such rule: {SEMANTICS}.md 9"),  # a heading in a code block
        ("other" + ".md 2.6", "source.py:1: no such specification: other" + ".md"),
        (f"({SEMANTICS} 2.6)", f"source.py:1: write it as `NAME.md ID`: {SEMANTICS} 2.6"),
        (f"({SEMANTICS}.md, Z-17)", f"source.py:1: write it as `NAME.md ID`: {SEMANTICS}.md, Z-17"),
        ("(chap" + "ter 7)", "source.py:1: write it as `NAME.md ID`: chap" + "ter 7"),
        ("#\n\n# as Z-17 says", "source.py:3: rule without its document: Z-17"),
    ],
)
def test_broken_citations_are_reported(source: Path, text: str, problem: str) -> None:
    source.write_text(text)
    assert check_docs.broken_citations(source) == [problem]


def test_specification_references_are_checked(source: Path, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "spec" / f"{SEMANTICS}.md"
    assert check_docs.broken_citations(page) == []
    page.write_text(RULES + "See §2.9, section 2 and Z-18.\n")
    name = f"docs/spec/{SEMANTICS}.md:13"
    assert check_docs.broken_citations(page) == [
        f"{name}: no such section in this document: 2.9",
        f"{name}: no such rule in this document: Z-18",
    ]


def test_rule_defined_twice_is_reported(source: Path, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "spec" / f"{SEMANTICS}.md"
    assert check_docs.ambiguous_rules(page) == []
    page.write_text(RULES + "* **Z-17** Once more.\n")
    assert check_docs.ambiguous_rules(page) == [f"docs/spec/{SEMANTICS}.md: Z-17 is defined more than once"]
