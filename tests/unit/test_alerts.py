"""The alerts of Prometheus: their metrics and labels exist, and each has a section of the manual."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sluice.supervisor.telemetry.catalogue import DEFINITIONS
from tests.promql import ROOT, rules, used_names

#: Pages of the manual, in the order of the rules.
PAGES = {name: (ROOT / f"docs/user/{name}.md").read_text("utf-8") for name in ("alerts", "alerts-network")}
#: Labels that Prometheus adds to each series.
TARGET_LABELS = {"job", "instance"}
ALERTS = rules("alert")
RECORDED = rules("record")


def known_labels(metric: str) -> set[str]:
    """Return the labels of a metric or of a recorded series. Fails if neither exists."""
    if metric == "up":
        return TARGET_LABELS
    if metric in RECORDED:
        names = used_names(RECORDED[metric]["expr"])
        return set().union(*map(known_labels, names.metrics)) - {"worker"}
    assert metric in DEFINITIONS, f"no metric {metric}"
    return {*DEFINITIONS[metric].labels, *TARGET_LABELS}


@pytest.mark.parametrize("name", [*ALERTS, *RECORDED])
def test_rule_uses_existing_metrics_and_labels(name: str) -> None:
    expression = {**ALERTS, **RECORDED}[name]["expr"]
    names = used_names(expression)
    assert names.metrics, expression
    assert names.labels <= set().union(*map(known_labels, names.metrics)), expression


@pytest.mark.parametrize("name", [*ALERTS, *RECORDED])
def test_rule_selects_job_in_each_series(name: str) -> None:
    """The Helm chart replaces the job, and thereby selects the series of its release."""
    expression = {**ALERTS, **RECORDED}[name]["expr"]
    series = re.findall(r"\b(?:outcome:)?(?:sluice|process)_\w+(?::\w+)?|\bup\b", expression)
    assert expression.count('{job="sluice"') == len(series)


@pytest.mark.parametrize("name", ALERTS)
def test_alert_is_complete(name: str) -> None:
    alert: dict[str, Any] = ALERTS[name]
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    (page,) = [page for page, text in PAGES.items() if f"\n### {name}\n" in text]
    assert alert["annotations"]["runbook_url"].endswith(f"/docs/user/{page}.html#{name.lower()}")


def test_manual_has_section_for_each_alert_in_order() -> None:
    sections = re.findall(r"^### (\w+)$", "".join(PAGES.values()), re.MULTILINE)
    assert sections == list(ALERTS)


def test_manual_says_severity_of_each_alert() -> None:
    text = "".join(PAGES.values())
    said = dict(re.findall(r"^### (\w+)\n\n(Critical|Warning)\.", text, re.MULTILINE))
    assert said == {name: alert["labels"]["severity"].capitalize() for name, alert in ALERTS.items()}


def test_names_in_expression_are_found() -> None:
    names = used_names('sum by (le, job) (rate(sluice_x_bucket{a="up", b!~"c=d"}[5m])) / on (e) group_left up{f=~"x"}')
    assert names.metrics == {"sluice_x_bucket", "up"}
    assert names.labels == {"le", "job", "a", "b", "e", "f"}
