"""Print what CHANGELOG.md says about the version of this checkout, for the notes of a release.

Links of CHANGELOG.md are relative to the repository. The page of a release is elsewhere, so its links are absolute.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sluice.router.version import VERSION  # noqa: E402  # after the path is set

CHANGELOG: Final = ROOT / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str | None:
    """Return the section of a version; None if there is none, or an empty one."""
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if heading.split()[0].strip("[]") == version:
            return text.strip() or None
    return None


def with_absolute_links(text: str) -> str:
    """Return Markdown with links into the repository as URLs, as setup.py makes them for the page of a package."""
    source = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]
    return re.sub(r"\]\((?!https?:|#)", f"]({source}", text)


def main() -> int:
    """Print the notes; return the exit status."""
    found = notes(CHANGELOG.read_text("utf-8"), VERSION)
    if found is None:
        print(f"{CHANGELOG.name} has no section '## {VERSION}': rename 'Unreleased' before a release", file=sys.stderr)
        return 1
    print(with_absolute_links(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
