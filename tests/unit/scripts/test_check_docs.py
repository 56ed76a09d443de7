"""scripts/check_docs.py finds links that lead nowhere, and only those."""

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
def test_good(page: Path, text: str) -> None:
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
def test_broken(page: Path, text: str, problem: str) -> None:
    page.write_text(text)
    assert check_docs.broken_links(page) == [problem]
