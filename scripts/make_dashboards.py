"""Make the dashboards of Grafana in conf/grafana from the panels in scripts/dashboards.py.

    python -m scripts.make_dashboards

Grafana stores a dashboard as JSON of some thousand lines, mostly the same for each panel, so the panels are kept apart
from it. The files use nothing newer than Grafana 10.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from scripts.dashboards import NETWORK, ROUTER, Panel, Row

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "conf/grafana"
#: Version of the dashboard's schema: that of Grafana 10.
SCHEMA: Final = 38
#: Columns of Grafana's grid, and the size of panels in it.
COLUMNS: Final = 24
SIZES: Final = {"timeseries": (8, 8), "stat": (4, 4), "name": (4, 4), "table": (24, 6)}
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
SELECTORS: Final = {"{ROUTER": '{job="$job", instance="$instance"', "{NETWORK": '{job="$job"'}

Json = dict[str, Any]


def expression(expr: str) -> str:
    """Return an expression of PromQL, with the selectors that a dashboard's variables make."""
    for name, selector in SELECTORS.items():
        expr = expr.replace(name, selector)
    return expr


def steps(thresholds: tuple[float, float] | None) -> list[Json]:
    """Return the colours of a number."""
    if thresholds is None:
        return [{"color": "text", "value": None}]
    first, second = thresholds
    low, high = sorted(thresholds)
    colors = ("green", "orange", "red") if first < second else ("red", "orange", "green")
    return [{"color": color, "value": value} for color, value in zip(colors, (None, low, high), strict=True)]


def target(panel: Panel, number: int) -> Json:
    """Return a query of a panel in Grafana's form."""
    expr, legend = panel.queries[number]
    over_time = panel.kind == "timeseries"
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expression(expr),
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": not over_time,
        "range": over_time,
        "legendFormat": legend or "__auto",
        "refId": "ABCDEFGH"[number],
    }


def options(panel: Panel) -> Json:
    """Return the options of a panel, by its kind."""
    if panel.kind == "timeseries":
        return {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    return {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "name" if panel.kind == "name" else "value",
    }


def panel_json(panel: Panel, number: int, place: Json) -> Json:
    """Return a panel in Grafana's form."""
    defaults: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps(panel.thresholds)}}
    if panel.kind == "timeseries":
        defaults["min"] = 0
        defaults["custom"] = {"drawStyle": "line", "fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
    made: Json = {
        "id": number,
        "type": "stat" if panel.kind == "name" else panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options(panel),
        "targets": [target(panel, index) for index in range(len(panel.queries))],
    }
    if panel.kind == "table":
        hidden = dict.fromkeys(("Time", "__name__", "job"), True)
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return made


def panels_json(rows: tuple[Row, ...]) -> list[Json]:
    """Return all panels, from left to right and from top to bottom."""
    made: list[Json] = []
    top = 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        made.append({
            "id": len(made) + 1, "type": "row", "title": row.title, "collapsed": False, "gridPos": place, "panels": [],
        })  # fmt: skip
        top += 1
        left = height = 0
        for panel in row.panels:
            wide, high = SIZES[panel.kind]
            if left + wide > COLUMNS:
                top, left, height = top + height, 0, 0
            made.append(panel_json(panel, len(made) + 1, {"h": high, "w": wide, "x": left, "y": top}))
            left, height = left + wide, max(height, high)
        top += height
    return made


def variable(name: str, label: str, query: str, several: bool = False) -> Json:
    """Return a variable whose values Grafana reads from Prometheus."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {},
    }


def dashboard(name: str, title: str, about: str, variables: list[Json], rows: tuple[Row, ...]) -> Json:
    """Return a dashboard in Grafana's form. `name` is part of its address."""
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
    }
    job = variable("job", "Job", "label_values(sluice_router_info, job)")
    others = {"type": "dashboards", "tags": ["sluice"], "title": "Sluice", "includeVars": False, "keepTime": True}
    return {
        "uid": f"sluice-{name}",
        "title": title,
        "description": about,
        "tags": ["sluice"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [{**others, "asDropdown": False, "icon": "external link", "targetBlank": False, "url": ""}],
        "annotations": {"list": []},
        "templating": {"list": [source, job, *variables]},
        "panels": panels_json(rows),
    }


def dashboards() -> dict[Path, Json]:
    """Return all dashboards by file."""
    ids = 'label_values(sluice_router_info{job="$job"}, id)'
    instances = 'label_values(sluice_router_info{job="$job", id="$router"}, instance)'
    router = [variable("router", "Router", ids), variable("instance", "Instance", instances)]
    network = [variable("router", "Routers", ids, several=True)]
    return {
        FOLDER / "router.json": dashboard("router", "Sluice router", "One router, by question.", router, ROUTER),
        FOLDER / "network.json": dashboard("network", "Sluice network", "All routers together.", network, NETWORK),
    }


def text(made: Json) -> str:
    """Return the content of a dashboard's file."""
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all dashboards."""
    FOLDER.mkdir(exist_ok=True)
    for file, made in dashboards().items():
        file.write_text(text(made), "utf-8")


if __name__ == "__main__":
    main()
