"""Report the rules of the specification (docs/spec/README.md) that no code or no test cites.

A rule is cited by its id or by the id of the section that it stands in. A section is itself a rule if it contains
neither rules nor sections. Of tests only the files `test_*.py` count. docs/spec/uncited.toml lists rules that need no
citation, each with a reason; any other uncited rule, and an entry of the list that is not needed, makes the exit status
1.

With rules as arguments (`spec_report.py "management.md 5.7"`), print the places that cite them.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from scripts import check_docs

EXCEPTIONS: Final = "uncited.toml"
FOLDERS: Final = {"code": ("router", "workers", "supervisor", "pipeline"), "tests": ("tests",)}
SOURCES: Final = ("*.py", "*.pyx", "*.pxd", "*.pxi")


class RuleName(NamedTuple):
    """Rule of a file of the specification."""

    document: str  # file name without `.md`
    id: str

    def __str__(self) -> str:
        return f"{self.document}.md {self.id}"

    def is_within(self, section: RuleName) -> bool:
        """Return True if this is a subsection of `section`."""
        return self.id.startswith(f"{section.id}.")


@dataclass(slots=True)
class Coverage:
    """Rules with the sections that they stand in, and the places (file:line) that cite rules or sections."""

    sections: dict[RuleName, RuleName | None]
    places: dict[str, dict[RuleName, list[str]]] = field(
        default_factory=lambda: {kind: defaultdict(list) for kind in FOLDERS}
    )

    def cited_by_id(self, kind: str, rule: RuleName) -> bool:
        """Return True if code or tests cite the rule by its id."""
        return rule in self.places[kind]

    def is_cited(self, kind: str, rule: RuleName) -> bool:
        """Return True if code or tests cite the rule or its section."""
        section = self.sections.get(rule)
        return self.cited_by_id(kind, rule) or (section is not None and section in self.places[kind])

    def uncited(self, kind: str) -> list[RuleName]:
        """Return the rules without citation, in the order of the documents."""
        return [rule for rule in self.sections if not self.is_cited(kind, rule)]


@dataclass(frozen=True, slots=True)
class ExcusedRules:
    """Rules that need no citation, for "code" and for "tests", and faults of the list itself."""

    rules: dict[str, set[RuleName]]
    faults: list[str]


def rules_of(path: Path) -> Iterator[tuple[RuleName, RuleName | None]]:
    """Yield each rule of a file with the section that it stands in, in the order of the file."""
    text = check_docs.FENCE.sub("", path.read_text("utf-8"))
    heads = sorted(
        (match.start(), pattern is check_docs.SECTION, RuleName(path.stem, match[1]))
        for pattern in (check_docs.RULE, check_docs.SECTION)
        for match in pattern.finditer(text)
    )
    section = None
    for at, (_, is_section, rule) in enumerate(heads):
        if not is_section:
            yield rule, section
            continue
        section = rule
        contents = [each.id for _, of_section, each in heads[at + 1 : at + 2] if not of_section or each.is_within(rule)]
        if not contents:
            yield rule, None


def cited_rules(citation: check_docs.Citation) -> Iterator[RuleName]:
    """Yield the rules of a citation; those of a range in the order of their file."""
    known = check_docs.specification(check_docs.ROOT).ids.get(citation.document, ())
    previous = None
    in_range = False
    for word in citation.words:
        if word == "to":
            in_range = True
            continue
        if in_range and previous in known and word in known:
            yield from (
                RuleName(citation.document, each) for each in known[known.index(previous) + 1 : known.index(word)]
            )
        yield RuleName(citation.document, word)
        previous = word
        in_range = False


def coverage() -> Coverage:
    """Read the specification and all sources."""
    specification = check_docs.ROOT / check_docs.SPECIFICATION
    found = Coverage(dict(rule for path in sorted(specification.glob("*.md")) for rule in rules_of(path)))
    for path in check_docs.tracked_files(*SOURCES):
        name = path.relative_to(check_docs.ROOT)
        kind = next((kind for kind, folders in FOLDERS.items() if name.parts[0] in folders), None)
        if kind is None or (kind == "tests" and not name.name.startswith("test_")):
            continue  # a peer or model for tests checks nothing by itself
        text = path.read_text("utf-8")
        for citation in check_docs.citations(text):
            place = f"{name}:{text.count(chr(10), 0, citation.start) + 1}"
            for rule in cited_rules(citation):
                found.places[kind][rule].append(place)
    return found


def excused(found: Coverage) -> ExcusedRules:
    """Read the list of rules that need no citation, and compare it with the citations."""
    path = check_docs.ROOT / check_docs.SPECIFICATION / EXCEPTIONS
    rules: dict[str, set[RuleName]] = {kind: set() for kind in FOLDERS}
    faults = []
    for entry in tomllib.loads(path.read_text("utf-8"))["exception"]:
        if not entry.get("reason"):
            faults.append(f"{entry['rules']}: no reason")
        named = [rule for citation in check_docs.citations(entry["rules"]) for rule in cited_rules(citation)]
        if not named:
            faults.append(f"{entry['rules']}: not a citation")
        for rule in named:
            if rule not in found.sections:
                faults.append(f"{rule}: no such rule")
                continue
            for kind in entry["uncited"]:
                if found.is_cited(kind, rule):
                    faults.append(f"{rule}: {kind} cites it, so it needs no exception")
                elif rule in rules[kind]:
                    faults.append(f"{rule}: excepted twice for {kind}")
                rules[kind].add(rule)
    return ExcusedRules(rules, [f"{check_docs.SPECIFICATION}/{EXCEPTIONS}: {fault}" for fault in faults])


def table(found: Coverage, excuses: ExcusedRules) -> Iterator[str]:
    """Yield a line for each file of the specification: counts of rules by how code and tests cite them."""
    head = "by id  section  excepted  none"
    yield f"{'':26}{'rules':>5}  | code: {head}  | tests: {head}"
    for document in dict.fromkeys(rule.document for rule in found.sections):
        rules = [rule for rule in found.sections if rule.document == document]
        line = f"{document + '.md':26}{len(rules):5}"
        for kind in FOLDERS:
            by_id = sum(found.cited_by_id(kind, rule) for rule in rules)
            by_section = sum(found.is_cited(kind, rule) for rule in rules) - by_id
            excepted = sum(rule in excuses.rules[kind] for rule in rules)
            none = len(rules) - by_id - by_section - excepted
            line += f"  | {'':{len(kind) + 1}} {by_id:5}  {by_section:7}  {excepted:8}  {none:4}"
        yield line


def show_places(found: Coverage, texts: Iterable[str]) -> int:
    """Print the places that cite these rules. Return 1 if a text names no rule."""
    rules = [rule for text in texts for citation in check_docs.citations(text) for rule in cited_rules(citation)]
    for rule in rules:
        for kind in FOLDERS:
            print(f"{rule} in {kind}:", *found.places[kind].get(rule, ["none"]), sep="\n    ")
    return 0 if rules else 1


def main(arguments: list[str]) -> int:
    """Print the report, or places of rules. Return the exit status."""
    found = coverage()
    if arguments:
        return show_places(found, arguments)
    excuses = excused(found)
    print(*table(found, excuses), sep="\n")
    faults = excuses.faults
    for kind in FOLDERS:
        faults += [
            f"{rule} (section {section.id}): no citation in {kind}" if section else f"{rule}: no citation in {kind}"
            for rule in found.uncited(kind)
            if rule not in excuses.rules[kind]
            for section in [found.sections[rule]]
        ]
    print(*faults, f"spec-report: {len(found.sections)} rules, {len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
