"""Build the documentation as a static site: build/site (make site).

The pages and links are those of the repository: docs/, the pages beside README.md, and those of loadtests/. The
navigation is the index in docs/README.md. A link that finds no page or heading is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.check_docs import CODE, LINK, tracked_files  # noqa: E402  # after the path is set

SITE: Final = ROOT / "build" / "site"
STAGE: Final = ROOT / "build" / "site-source"
HOME: Final = Path("README.md")
INDEX: Final = Path("docs/README.md")
#: Folders with pages for the forge only.
FORGE_ONLY: Final = (".github",)
#: Sections of the index that lead to pages of its other sections.
CHOOSING: Final = ("By who you are", "By what is wrong")
#: Pages of the index that lead to all other pages of a folder.
LEADING: Final = {
    Path("docs/spec/README.md"): Path("docs/spec"),
    Path("docs/decisions/README.md"): Path("docs/decisions"),
    Path("docs/performance.md"): Path("loadtests/results"),
}

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


class SiteError(Exception):
    """Raised if the pages cannot become a site. The text names the page."""


def targets(text: str, page: Path) -> Iterator[Path]:
    """Yield the existing files and folders that the text of a page links to, in order."""
    for link in LINK.findall(CODE.sub("", text)):
        name = link.partition("#")[0]
        target = Path(os.path.normpath(page.parent / name))
        if name and not _SCHEME.match(link) and (ROOT / target).exists():
            yield target


def with_pages_for_folders(text: str, page: Path) -> str:
    """Return the text of a page whose links to folders lead to the pages made of these folders."""

    def lead(match: re.Match[str]) -> str:
        link = match[1]
        is_folder = not _SCHEME.match(link) and not link.startswith("#") and (ROOT / page.parent / link).is_dir()
        return match[0].replace(f"({link})", f"({link.rstrip('/')}/README.md)") if is_folder else match[0]

    return LINK.sub(lead, text)


def folder_page(folder: Path) -> str:
    """Return a page with the text of the files in a folder."""
    parts = [f"# {folder}"]
    for path in tracked_files(f"{folder}/**"):
        text = path.read_text("utf-8").rstrip()
        parts.append(f"## {path.relative_to(ROOT / folder)}\n\n```\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def stage(into: Path) -> list[Path]:
    """Write the pages, and what they link to, below `into`. Return the pages of the repository."""
    pages = [path.relative_to(ROOT) for path in tracked_files("*.md")]
    pages = [page for page in pages if page.parts[0] not in FORGE_ONLY]
    for page in pages:
        text = (ROOT / page).read_text("utf-8")
        _write(into / page, with_pages_for_folders(text, page))
        for target in targets(text, page):
            if (ROOT / target).is_dir():
                _write(into / target / "README.md", "---\norphan: true\n---\n" + folder_page(target))
            elif target.suffix != ".md":
                (into / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / target, into / target)
    return pages


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def navigation(index: str, pages: list[Path]) -> dict[str, list[Path]]:
    """Return the pages by section of the index. Raises SiteError if the index lacks a page of docs/."""
    left = [page for page in pages if page not in (HOME, INDEX)]
    chosen: dict[str, list[Path]] = {}
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if heading in CHOOSING:
            continue
        chosen[heading] = []
        for target in targets(text, INDEX):
            folder = LEADING.get(target)
            for page in [target, *(page for page in left if page.parent == folder)]:
                if page in left:
                    left.remove(page)
                    chosen[heading].append(page)
    if missing := [str(page) for page in left if page.parts[0] == "docs"]:
        raise SiteError(f"{INDEX} does not name {', '.join(missing)}")
    return {**chosen, "More": left}


def contents(sections: dict[str, list[Path]]) -> str:
    """Return the navigation as hidden tables of contents for the first page."""
    trees = []
    for heading, pages in {"Documentation": [INDEX], **sections}.items():
        names = "\n".join(str(page.with_suffix("")) for page in pages)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{names}\n```\n")
    return "\n" + "\n".join(trees)


def main() -> int:
    """Build the site; return the exit status."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = stage(STAGE)
    try:
        sections = navigation((ROOT / INDEX).read_text("utf-8"), pages)
    except SiteError as error:
        print(f"make_site: {error}", file=sys.stderr)
        return 1
    with (STAGE / HOME).open("a", encoding="utf-8") as home:
        home.write(contents(sections))
    sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--builder", "html"]
    built = subprocess.run([*sphinx, "--conf-dir", "docs/site", str(STAGE), str(SITE)], cwd=ROOT, check=False)
    if built.returncode == 0:
        shutil.copy(SITE / "README.html", SITE / "index.html")
        print(f"site: {len(pages)} pages in {SITE.relative_to(ROOT)}")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
