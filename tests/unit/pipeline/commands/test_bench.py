"""Benchmark of landing and reading."""

from sluice.pipeline.cli import main
from sluice.pipeline.segments import Landing


def test_bench_reports_rates_and_deletes_segments(tmp_path, capsys):
    assert main(["bench", "--path", str(tmp_path), "--rows", "100", "--segments", "2", "--size", "10"], "p") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 segments of 100 messages with bodies of 10 random octets"
    assert [line.split(",")[0].split(":")[0].split("  ")[0] for line in lines[1:]] == [
        "encode",
        "land",
        "read with pyarrow",
        "a segment",
    ]
    assert Landing.open(str(tmp_path)).listing("bench/bench").segments == []
