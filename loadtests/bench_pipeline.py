"""Benchmark of the pipeline: `python -m loadtests.bench_pipeline [ROW ...] [--quick] [--json FILE]`."""

import importlib
import importlib.util
import sys

from loadtests.bench import Rows, main

#: Modules that define ROWS.
PARTS = ("loadtests.landing_rows", "loadtests.pipeline_rows", "loadtests.telemetry_rows")


def rows() -> Rows:
    found = [importlib.import_module(part).ROWS for part in PARTS if importlib.util.find_spec(part) is not None]
    return {name: row for part in found for name, row in part.items()}


if __name__ == "__main__":
    sys.exit(main(rows=rows(), program="loadtests.bench_pipeline"))
