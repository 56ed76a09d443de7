"""Command line of the pipeline: verbs, units, and messages about missing dependencies."""

import argparse
import importlib.metadata
import importlib.util
import stat
import subprocess
import sys

import pytest

from sluice.pipeline import prerequisites
from sluice.pipeline.cli import load, main, verbs
from sluice.pipeline.env import describe_failure
from sluice.pipeline.errors import DataLossError, MissingError
from sluice.pipeline.units import minutes, octets_text, seconds


def test_verb_modules_are_complete():
    assert {"gc", "land"} <= set(verbs())
    for verb in verbs():
        module = load(verb)
        assert module.HELP
        assert callable(module.add_arguments)
        assert callable(module.run)


@pytest.mark.starts
def test_command_line_imports_no_optional_packages():
    code = (
        "import sys\n"
        "from sluice.pipeline.cli import load, verbs\n"
        "import sluice.router.cli.main\n"
        "[load(verb) for verb in verbs()]\n"
        "print(sorted({'pyarrow', 'pandas', 'pyspark', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"pyarrow not installed: pip install 'sluice-router\[pipeline\]'"):
        prerequisites.require("pyarrow")


@pytest.mark.parametrize("version", ["4.0.0", "4.1.2.dev0", "4.3.1"])
def test_supported_spark_is_accepted(monkeypatch, version):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    prerequisites.require("pyspark")


def test_old_spark_is_refused_by_its_version(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.5.4")
    text = r"pyspark 3.5.4 has no data sources in Python: the pipeline needs 4.0 or later: pip install 'sluice"
    with pytest.raises(MissingError, match=text):
        prerequisites.require("pyspark")


@pytest.mark.starts
def test_java_version_is_checked(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()

    def write_java(script: str) -> None:
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(stat.S_IRWXU)

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingError, match="which has no bin/java"):
        prerequisites.find_java()
    write_java("""echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    assert prerequisites.find_java() == str(java)
    write_java("""echo 'java version "1.8.0_402"' >&2""")
    with pytest.raises(MissingError, match="is Java 8: Spark needs 17 or later"):
        prerequisites.find_java()
    write_java("echo broken >&2; exit 3")
    with pytest.raises(MissingError, match="-version fails: broken"):
        prerequisites.find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(MissingError, match="no Java was found: Spark needs 17 or later"):
        prerequisites.find_java()


def test_units_are_parsed():
    assert [minutes(text) for text in ("60", "90s", "1.5h", "7d")] == [3600, 90, 5400, 604800]
    assert [seconds(text) for text in ("0", "5", "0.2", ".5", "5.")] == [0.0, 5.0, 0.2, 0.5, 5.0]
    assert [octets_text(octets) for octets in (5, 1536, 5 << 30)] == ["5 B", "1.5 KiB", "5.0 GiB"]
    for read, text in ((minutes, "soon"), (seconds, "-1"), (seconds, "nan")):
        with pytest.raises(argparse.ArgumentTypeError, match=repr(text)):
            read(text)


def test_errors_are_printed_on_one_line(tmp_path, capsys):
    assert main(["gc", "--path", str(tmp_path)], "p") == 1
    assert capsys.readouterr().err.startswith("p gc: ")
    with pytest.raises(SystemExit) as ended:
        main(["nothing"], "p")
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("[STREAM_FAILED] Query [id = 1] terminated\n  more", "[STREAM_FAILED] Query [id = 1] terminated"),
        (f"job aborted\n{DataLossError.__module__}.DataLossError: segment 7 is gone", "segment 7 is gone"),
        ("[STREAM_FAILED] it ended: No space left on device", "No space left on device, for the checkpoint"),
    ],
)
def test_failed_query_is_summarised(text, summary):
    assert describe_failure(RuntimeError(text)).startswith(summary)
