"""Command-line options, parsed as C's getopt_long does."""

from __future__ import annotations

import pytest

from sluice.router.cli.getopt_long import Option, OptionError, parse

OPTIONS = (Option("c", "config", "PATH"), Option("v", "version"), Option("d", "daemon"), Option("x", "verbose"))


def parsed(*words: str) -> list[tuple[str, str]]:
    return list(parse(OPTIONS, words))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["-c", "a", "-d"], [("c", "a"), ("d", "")]),
        (["-ca"], [("c", "a")]),
        (["-dvca"], [("d", ""), ("v", ""), ("c", "a")]),
        (["--config", "a"], [("c", "a")]),
        (["--config=a=b"], [("c", "a=b")]),
        (["--config="], [("c", "")]),
        (["-c", "-d"], [("c", "-d")]),
        (["--conf", "a", "--d"], [("c", "a"), ("d", "")]),
        (["word", "-d"], [("", "word"), ("d", "")]),
        (["-", "--", "-d", "--"], [("", "-"), ("", "-d"), ("", "--")]),
        ([], []),
    ],
)
def test_options_and_words_keep_order(words: list[str], options: list[tuple[str, str]]) -> None:
    assert parsed(*words) == options


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-z"], "invalid option -- 'z'"),
        (["-dz"], "invalid option -- 'z'"),
        (["-c"], "option requires an argument -- 'c'"),
        (["--nonsense"], "unrecognized option '--nonsense'"),
        (["--config"], "option '--config' requires an argument"),
        (["--daemon=yes"], "option '--daemon' doesn't allow an argument"),
        (["--ver"], "option '--ver' is ambiguous; possibilities: '--version' '--verbose'"),
    ],
)
def test_invalid_option_is_refused_in_words_of_getopt(words: list[str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(*words)
    assert str(caught.value) == text


def test_exact_name_is_not_ambiguous() -> None:
    options = (Option("a", "all"), Option("b", "all-of-them"))
    assert list(parse(options, ["--all"])) == [("a", "")]


def test_options_before_invalid_one_are_yielded() -> None:
    found = parse(OPTIONS, ["-v", "--nonsense"])
    assert next(found) == ("v", "")
    with pytest.raises(OptionError):
        next(found)
