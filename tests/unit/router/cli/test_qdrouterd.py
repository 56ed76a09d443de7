"""Options of `qdrouterd`, as in Dispatch."""

import pytest

from sluice.router.version import VERSION

pytestmark = pytest.mark.starts


@pytest.mark.parametrize("words", [["-v"], ["--version"], ["--ver"], ["-Tv", "--nonsense"], ["x", "-v"]])
def test_qdrouterd_version_option_prints_version(shell, words):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["-h", "anything"], ["-h", "-c"]])
def test_qdrouterd_help_lists_options(shell, words):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["Usage: bin/qdrouterd [OPTIONS]", ""]
    options = [line[2:].split("=")[0].split("  ")[0] for line in lines[2:]]
    assert options == [
        "-c, --config", "-I, --include", "-d, --daemon", "-P, --pidfile", "-U, --user", "-T, --test-hooks",
        "-v, --version", "-h, --help",
    ]  # fmt: skip
    assert "(/" in lines[2]
    assert "(/" in lines[3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-x"], "bin/qdrouterd: invalid option -- 'x'"),
        (["-Tx"], "bin/qdrouterd: invalid option -- 'x'"),
        (["-c"], "bin/qdrouterd: option requires an argument -- 'c'"),
        (["--config"], "bin/qdrouterd: option '--config' requires an argument"),
        (["--nonsense"], "bin/qdrouterd: unrecognized option '--nonsense'"),
        (["--daemon=x"], "bin/qdrouterd: option '--daemon' doesn't allow an argument"),
        (["a", "-T", "b"], "Unexpected arguments: a b\n"),
        (["--", "-v"], "Unexpected arguments: -v\n"),
    ],
)
def test_qdrouterd_with_invalid_options_is_refused(shell, words, message):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stderr) == (1, f"{message}\n")
    assert done.stdout.startswith("Usage: bin/qdrouterd [OPTIONS]\n")


@pytest.mark.parametrize(
    "words",
    [["-c", "good.conf"], ["-cgood.conf"], ["--config", "good.conf"], ["--config=good.conf"], ["--conf=good.conf"]],
)
def test_qdrouterd_passes_configuration_to_supervisor(shell, words):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.endswith(" SERVER (notice) Operational\n")
    recorded = shell.recorded()
    assert (recorded["id"], recorded["program"], recorded["hooks"]) == ("A", "bin/qdrouterd", False)


def test_hooks_option_is_passed_without_daemon(shell):
    done = shell("qdrouterd", "-c", "good.conf", "-T", "-P", "pid", "-U", "nobody-here", "-I", ".")
    assert done.returncode == 7
    assert shell.recorded()["hooks"] is True
    assert not (shell.folder / "pid").exists()
