"""Pages and navigation of the documentation's site, without Sphinx."""

from pathlib import Path

import pytest

from scripts import make_site


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """Folder with the pages of this repository, and the pages."""
    into = tmp_path_factory.mktemp("site")
    return into, make_site.stage(into)


def test_index_names_each_page_of_documentation(staged: tuple[Path, list[Path]]) -> None:
    _, pages = staged
    sections = make_site.navigation((make_site.ROOT / make_site.INDEX).read_text("utf-8"), pages)
    assert Path("docs/user/operate.md") in sections["How-to guides"]
    named = [page for chosen in sections.values() for page in chosen]
    assert sorted([*named, make_site.HOME, make_site.INDEX]) == sorted(pages)


def test_page_missing_in_index_is_refused() -> None:
    pages = [make_site.HOME, make_site.INDEX, Path("docs/user/operate.md"), Path("docs/user/tls.md")]
    with pytest.raises(make_site.SiteError, match=r"docs/user/tls\.md"):
        make_site.navigation("# Documentation\n\n## Start\n\n- [Operating](user/operate.md)\n", pages)


def test_link_to_folder_leads_to_page_with_its_files(staged: tuple[Path, list[Path]]) -> None:
    into, _ = staged
    assert "(../../conf/network/README.md)" in (into / "docs/user/network.md").read_text("utf-8")
    assert "router {" in (into / "conf/network/README.md").read_text("utf-8")


def test_linked_files_are_copied_beside_pages(staged: tuple[Path, list[Path]]) -> None:
    into, _ = staged
    assert (into / "docs/user/pictures/overview.png").exists()
    assert (into / "LICENSE").exists()


def test_pages_of_forge_are_left_out(staged: tuple[Path, list[Path]]) -> None:
    _, pages = staged
    assert not [page for page in pages if page.parts[0] == ".github"]
