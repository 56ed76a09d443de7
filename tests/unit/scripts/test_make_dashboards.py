"""The dashboards of Grafana: they are those of scripts/dashboards.py, and their expressions use existing names."""

from __future__ import annotations

import json
import re

import pytest

from scripts.make_dashboards import COLUMNS, dashboards, text
from sluice.supervisor.telemetry.catalogue import DEFINITIONS
from tests.promql import DASHBOARDS, DashboardQuery, dashboard_queries, used_names

#: Labels that no metric of a router has: those of Prometheus, its alerts and histograms.
GENERAL_LABELS = {"job", "instance", "le", "alertname", "alertstate"}
#: Variables that Grafana defines.
BUILT_IN = {"__rate_interval"}


def test_dashboard_files_are_those_of_script() -> None:
    """To update them: python -m scripts.make_dashboards."""
    made = dashboards()
    assert sorted(made) == DASHBOARDS
    assert [file.name for file, content in made.items() if file.read_text("utf-8") != text(content)] == []


@pytest.mark.parametrize("query", dashboard_queries(), ids=lambda query: f"{query.dashboard}-{query.title}")
def test_panel_uses_existing_metrics_and_labels(query: DashboardQuery) -> None:
    names = used_names(query.expr)
    metrics = {name.removesuffix("_bucket") for name in names.metrics} - {"up"}
    assert metrics <= DEFINITIONS.keys()
    # The network's panels join the ids of the routers.
    known = GENERAL_LABELS.union(*(DEFINITIONS[name].labels for name in metrics))
    assert names.labels | query.legend <= known


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_dashboard_defines_variables_before_use(file: object) -> None:
    (made,) = [each for path, each in dashboards().items() if path == file]
    defined = set(BUILT_IN)
    for variable in made["templating"]["list"]:
        if variable["type"] == "query":
            assert {"datasource", *re.findall(r"\$(\w+)", variable["definition"])} <= defined
        defined.add(variable["name"])
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(made["panels"]))) <= defined


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_of_dashboard_have_own_places_and_ids(file: object) -> None:
    (made,) = [each for path, each in dashboards().items() if path == file]
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < COLUMNS
        taken |= cells
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
