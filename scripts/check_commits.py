#!/usr/bin/env python3
"""Check commit messages against CONTRIBUTING.md.

`check_commits.py FILE` checks one message, for scripts/hooks/commit-msg. `check_commits.py RANGE` checks the commits of
a range such as `HEAD~5..`. Without an argument it checks all commits after FIRST.
"""

import re
import subprocess
import sys
from pathlib import Path

#: Last commit made before this check existed.
FIRST = "9469e80e36"
SUBJECT_MOST = 72  # characters
BODY_MOST = 100  # characters of a line
_SUBJECT = re.compile(r"(?P<area>[\w.,/ -]+): (?P<verb>\S+)( .*)?")
_ARTICLES = "a an the"
_PRONOUNS = "it its nobody none nothing one other others some that there these they this those we what which who"
_QUANTIFIERS = "all another any both each every few many more most no only two"
_PREPOSITIONS = "as at by for from if in of on to when where with"
#: First words of statements, which are no imperatives.
_NO_VERBS = frozenset(" ".join((_ARTICLES, _PRONOUNS, _QUANTIFIERS, _PREPOSITIONS, "and")).split())
#: Verbs whose imperative looks like another form of a verb.
_IN_S = ("access", "address", "bypass", "compress", "cross", "discuss", "express", "focus", "guess", "pass", "process")
_IN_ED = ("embed", "exceed", "feed", "proceed", "seed", "shed", "speed")
_IN_ING = ("bring", "ping", "string")


def faults_of(message: str) -> list[str]:
    """Return the faults of a commit message; empty if it follows the rules."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    faults = []
    if len(subject) > SUBJECT_MOST:
        faults.append(f"the subject has {len(subject)} characters, more than {SUBJECT_MOST}")
    if subject.endswith("."):
        faults.append("the subject ends with a period")
    found = _SUBJECT.fullmatch(subject)
    if found is None:
        faults.append("the subject is not of the form 'area: verb …'")
    elif not _imperative(found["verb"]):
        faults.append(f"'{found['verb']}' is not a verb in the imperative, in lower case")
    if len(lines) > 1 and lines[1]:
        faults.append("the second line is not empty")
    if not any(line.strip() for line in lines[2:]):
        faults.append("there is no body that says why")
    if any(len(line) > BODY_MOST and " " in line.strip() for line in lines[2:]):
        faults.append(f"a line of the body has more than {BODY_MOST} characters")
    return faults


def _imperative(word: str) -> bool:
    """Return True if a word can be an imperative in lower case, judged by its form."""
    if word != word.lower() or word in _NO_VERBS:
        return False
    if word.endswith("s") and word not in _IN_S:
        return False
    if word.endswith("ed") and word not in _IN_ED:
        return False
    return not word.endswith("ing") or word in _IN_ING


def commits(revisions: str) -> list[tuple[str, str]]:
    """Return the abbreviated id and message of each commit in a range, without merges.

    Raises CalledProcessError for a range that git does not know.
    """
    command = ["git", "log", "--no-merges", "--format=%h%n%B%x00", revisions]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    messages = (entry.lstrip("\n") for entry in output.split("\0"))
    return [(entry[: entry.index("\n")], entry[entry.index("\n") + 1 :]) for entry in messages if "\n" in entry]


def main(argument: str) -> int:
    """Check a file with a message, or a range of commits. Return the exit status."""
    path = Path(argument)
    checked = [("message", path.read_text())] if path.is_file() else commits(argument)
    status = 0
    for name, message in checked:
        for fault in faults_of(message):
            print(f"{name}: {fault}: {message.splitlines()[0] if message.strip() else ''}")
            status = 1
    return status


def known(revision: str) -> bool:
    """Return True if this clone has a commit. A shallow clone may lack it; a source archive has none."""
    command = ["git", "cat-file", "-e", f"{revision}^{{commit}}"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: check_commits.py [FILE|RANGE]")
    if len(sys.argv) == 2:
        sys.exit(main(sys.argv[1]))
    if known(FIRST):
        sys.exit(main(f"{FIRST}.."))
    print(f"commit messages are not checked: this copy has no commit {FIRST}")
