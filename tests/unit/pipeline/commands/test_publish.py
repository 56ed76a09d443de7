"""Arguments of `publish` that are refused before Spark starts."""

import pytest

from sluice.pipeline.cli import main


@pytest.mark.parametrize("words", [("--follow",), ("--checkpoint", "progress")])
def test_follow_and_checkpoint_must_come_together(words, capsys):
    assert main(["publish", "--table", "t", *words], "p") == 1
    assert capsys.readouterr().err == "p publish: --follow and --checkpoint must be given together\n"


@pytest.mark.parametrize("words", [("--format", "xml"), ("--trigger", "-1"), ("--on-reject", "panic")])
def test_unknown_choice_is_refused(words):
    with pytest.raises(SystemExit) as ended:
        main(["publish", "--table", "t", *words], "p")
    assert ended.value.code == 2
