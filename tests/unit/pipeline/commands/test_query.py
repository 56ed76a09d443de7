"""Arguments of queries that are refused before Spark starts."""

import pytest

from sluice.pipeline.cli import main
from sluice.pipeline.commands.query import pairs
from sluice.pipeline.errors import PipelineError


def test_pairs_are_split_at_the_first_equals_sign():
    assert pairs(["a=b=c", "d="], "--conf") == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("word", ["a", "=b", ""])
def test_word_that_is_no_pair_is_refused(word):
    with pytest.raises(PipelineError, match=f"--conf '{word}': expected NAME=VALUE"):
        pairs([word], "--conf")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--out", "table"), "p query: --out needs --checkpoint DIR\n"),
        (("--show", "--dedup", "5", "--decode", "body"), "p query: --dedup needs --decode full, because"),
    ],
)
def test_incomplete_arguments_are_refused(words, text, tmp_path, capsys):
    assert main(["query", "--path", str(tmp_path), *words], "p") == 1
    assert capsys.readouterr().err.startswith(text)


@pytest.mark.parametrize("words", [("--out", "t", "--show"), (), ("--show", "0"), ("--show", "--trigger", "nan")])
def test_wrong_command_line_is_refused(words, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["query", "--path", str(tmp_path), *words], "p")
    assert ended.value.code == 2
