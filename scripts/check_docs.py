"""Checks that each relative link in the project's Markdown leads to a file, and its #anchor to a heading."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.MULTILINE)


def markdown_files() -> list[Path]:
    """The Markdown files that git knows or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])  # a source archive, not a checkout
    return sorted(ROOT / name for name in names.split("\0") if name and (ROOT / name).exists())


def anchors(path: Path) -> set[str]:
    """Anchors of a file's headings, as web views of repositories make them."""
    text = FENCE.sub("", path.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}


def broken_links(path: Path) -> list[str]:
    """One line for each link of the file that leads nowhere."""
    text = CODE.sub("", FENCE.sub("", path.read_text("utf-8")))
    problems = []
    for link in LINK.findall(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            problems.append(f"{path.relative_to(ROOT)}: no such file: {link}")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            problems.append(f"{path.relative_to(ROOT)}: no such heading: {link}")
    return problems


def main() -> int:
    """Returns the exit status."""
    files = markdown_files()
    problems = [problem for path in files for problem in broken_links(path)]
    print(*problems, f"docs: {len(files)} files, {len(problems)} broken links", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
