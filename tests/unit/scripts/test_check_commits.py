"""Commit messages: what the check takes and what it refuses."""

import pytest

from scripts.check_commits import faults_of

GOOD = "credit: grant after settlement in batches\n\nEach settlement wrote a flow.\n"


def test_message_in_the_form_passes() -> None:
    assert faults_of(GOOD) == []


@pytest.mark.parametrize(
    "subject",
    [
        "docs: address the reader as you",
        "router/links, tests: speed up the drain of idle links",
        "performance.md: bring the figures of hops up to date",
    ],
)
def test_subject_with_imperative_passes(subject: str) -> None:
    assert faults_of(f"{subject}\n\nWhy.\n") == []


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("lines of their width", "the subject is not of the form 'area: verb …'"),
        ("workers: a wake costs less", "'a' is not a verb in the imperative, in lower case"),
        ("workers: Write outcomes first", "'Write' is not a verb in the imperative, in lower case"),
        ("workers: fixed a leak", "'fixed' is not a verb in the imperative, in lower case"),
        ("workers: fixes a leak", "'fixes' is not a verb in the imperative, in lower case"),
        ("workers: fixing a leak", "'fixing' is not a verb in the imperative, in lower case"),
        ("workers: fix a leak.", "the subject ends with a period"),
        (f"workers: fix {'a' * 60}", "the subject has 73 characters, more than 72"),
    ],
)
def test_subject_with_fault_is_refused(subject: str, fault: str) -> None:
    assert faults_of(f"{subject}\n\nWhy.\n") == [fault]


def test_message_without_body_is_refused() -> None:
    assert faults_of("workers: fix a leak\n") == ["there is no body that says why"]
    assert faults_of("workers: fix a leak\n\n# comment of git\n") == ["there is no body that says why"]


def test_body_without_empty_line_before_it_is_refused() -> None:
    assert faults_of("workers: fix a leak\nof memory\nin two places\n") == ["the second line is not empty"]


def test_long_line_of_body_is_refused_unless_it_cannot_be_broken() -> None:
    assert faults_of(f"{GOOD}{'word ' * 21}\n") == ["a line of the body has more than 100 characters"]
    assert faults_of(f"{GOOD}{'https://example.org/' + 'x' * 90}\n") == []


def test_missing_message_is_refused() -> None:
    assert faults_of("") == ["the subject is not of the form 'area: verb …'", "there is no body that says why"]
