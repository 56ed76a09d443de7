"""Check the references in the project's texts.

* Each relative link in Markdown leads to a file, and its #anchor to a heading.
* Each citation of the specification (docs/spec/README.md) names an existing rule or section, in code and in Markdown;
  each rule has a unique id.
"""

import bisect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPECIFICATION = "docs/spec"
TEXTS = ("*.md", "*.py", "*.pyx", "*.pxd", "*.txt")  # files that may cite it
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.MULTILINE)

_ID = r"(?:[A-Z]{1,3}-\d+[a-z]?|\d+(?:\.\d+)*)"
_SPACE = r"(?:\s|\#)+"  # a comment may be wrapped there
_IDS = rf"{_ID}(?:(?:,|{_SPACE}to|,?{_SPACE}and){_SPACE}{_ID}\b(?!-))*"
RULE = re.compile(r"^(?:\* )?\*\*([A-Z]{1,3}-\d+[a-z]?)\b", re.MULTILINE)
SECTION = re.compile(r"^#{2,4} (\d+(?:\.\d+)*)\.? ", re.MULTILINE)
CITATION = re.compile(rf"\b([\w-]+)\.md{_SPACE}({_IDS})")
# Texts that look like citations but do not have their form.
LOOSE = re.compile(
    r"\b(?:(?:routing[- ]semantics|brokers-and-edge|inter-router(?:-protocol)?|security)"
    rf"(?:`|\.md|\.md`)?,?{_SPACE}(?:\(|§|(?:chapter|section)s?{_SPACE})?{_ID}\b"
    rf"|management spec(?:\.|ification),?{_SPACE}(?:§|chapters?{_SPACE})?\d"
    rf"|management(?:\.md|\.md`)?,?{_SPACE}(?:§|chapters?{_SPACE})?\d+\.\d"
    rf"|chapters?{_SPACE}\d)",
    re.IGNORECASE,
)
BARE = re.compile(r"(?<![\w-])([A-Z]{1,3})-\d+[a-z]?\b")
WITHIN = re.compile(r"(?:§|\b[Ss]ections? )(\d+(?:\.\d+)*)")  # a section of the same document


def tracked_files(*patterns: str) -> list[Path]:
    """Return the files that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    try:
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):  # a source archive, not a checkout
        places = (ROOT, *(ROOT / name for name in ("docs", "router", "supervisor", "workers", "tests", "loadtests")))
        return sorted({path for place in places for pattern in patterns for path in _below(place, pattern)})
    return sorted(ROOT / name for name in names.split("\0") if name and (ROOT / name).exists())


def _below(place: Path, pattern: str) -> Iterator[Path]:
    return place.glob(pattern) if place == ROOT else place.rglob(pattern)


# -- Links


def anchors(path: Path) -> set[str]:
    """Return the anchors of a file's headings, as web views of repositories form them."""
    text = FENCE.sub("", path.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}


def broken_links(path: Path) -> list[str]:
    """Describe each broken link of a file."""
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


# -- Citations


@dataclass(frozen=True, slots=True)
class Specification:
    """Rules of docs/spec: ids by file name (without `.md`), and the letter prefixes of these ids."""

    ids: dict[str, tuple[str, ...]]
    prefixes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Citation:
    """Citation of rules of one file of the specification, at characters `start` to `end` of a text."""

    start: int
    end: int
    document: str  # file name without `.md`
    words: tuple[str, ...]  # ids, with "to" between the ends of a range

    @property
    def ids(self) -> list[str]:
        """Return the ids as written: of a range, its ends."""
        return [word for word in self.words if word != "to"]


def citations(text: str) -> Iterator[Citation]:
    """Yield each citation in a text."""
    for match in CITATION.finditer(text):
        yield Citation(*match.span(), match[1], tuple(re.findall(rf"\bto\b|{_ID}", match[2])))


@cache
def specification(root: Path) -> Specification:
    """Return the rules that may be cited."""
    ids = {path.stem: tuple(defined(path)) for path in (root / SPECIFICATION).glob("*.md")}
    prefixes = {each.partition("-")[0] for known in ids.values() for each in known if "-" in each}
    return Specification(ids, frozenset(prefixes))


def defined(path: Path) -> list[str]:
    """Return the ids of the rules and sections of a file, with duplicates."""
    text = FENCE.sub("", path.read_text("utf-8"))
    return [*RULE.findall(text), *SECTION.findall(text)]


def ambiguous_rules(path: Path) -> list[str]:
    """Describe each id of a specification that is defined more than once."""
    twice = [each for each, count in Counter(defined(path)).items() if count > 1]
    return [f"{path.relative_to(ROOT)}: {each} is defined more than once" for each in twice]


def broken_citations(path: Path) -> list[str]:
    """Describe each citation in a file that names no rule, or does not have the form of a citation."""
    known = specification(ROOT)
    text = path.read_text("utf-8")
    own = known.ids[path.stem] if path.parent == ROOT / SPECIFICATION and path.stem != "README" else None
    found: list[tuple[int, str]] = []
    spans: list[tuple[int, int]] = []
    for citation in citations(text):
        spans.append((citation.start, citation.end))
        name = citation.document
        if name not in known.ids:
            found.append((citation.start, f"no such specification: {name}.md"))
            continue
        missing = [each for each in citation.ids if each not in known.ids[name]]
        found += [(citation.start, f"no such rule: {name}.md {each}") for each in missing]
    for match in LOOSE.finditer(text):
        if not _inside(spans, match.start()) and not (own is not None and match[0].lower().startswith("chapter")):
            spans.append(match.span())
            found.append((match.start(), f"write it as `NAME.md ID`: {' '.join(match[0].split())}"))
    spans.sort()
    for match in BARE.finditer(text):
        if match[1] not in known.prefixes or _inside(spans, match.start()):
            continue
        if own is None and path.parent != ROOT / SPECIFICATION:
            found.append((match.start(), f"rule without its document: {match[0]}"))
        elif own is not None and match[0] not in own:
            found.append((match.start(), f"no such rule in this document: {match[0]}"))
    if own is not None:
        absent = [match for match in WITHIN.finditer(text) if match[1] not in own]
        found += [(match.start(), f"no such section in this document: {match[1]}") for match in absent]
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    name = str(path.relative_to(ROOT))
    return [f"{name}:{bisect.bisect(lines, start)}: {problem}" for start, problem in sorted(found)]


def _inside(spans: list[tuple[int, int]], at: int) -> bool:
    return any(start <= at < end for start, end in spans)


def main() -> int:
    """Check all files; return the exit status."""
    pages = tracked_files("*.md")
    links = [problem for path in pages for problem in broken_links(path)]
    texts = tracked_files(*TEXTS)
    rules = [problem for path in pages if path.parent == ROOT / SPECIFICATION for problem in ambiguous_rules(path)]
    broken = [*rules, *(problem for path in texts for problem in broken_citations(path))]
    print(*links, f"docs: {len(pages)} files, {len(links)} broken links", sep="\n")
    print(*broken, f"citations: {len(texts)} files, {len(broken)} broken", sep="\n")
    return 1 if links or broken else 0


if __name__ == "__main__":
    sys.exit(main())
