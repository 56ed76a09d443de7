"""Alerts of the pipeline: their metrics and labels exist, and each has a section of the manual."""

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")
from sluice.pipeline.metrics import LanderCollector
from sluice.router.client.message import Message
from tests.promql import PIPELINE_RULES, ROOT, rules, used_names
from tests.unit.pipeline.lander_run import LanderRun, put
from tests.unit.router.client.server import EngineBroker

MANUAL = ROOT / "docs/user/pipeline-operate.md"
ALERTS = rules("alert", PIPELINE_RULES)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Labels of each metric of a lander, by its name."""
    with EngineBroker() as broker:
        put(broker, Message("x").encode())
        run = LanderRun(broker, tmp_path_factory.mktemp("landing"))
        run.until(lambda: len(broker.heard) == 1)
        found = {"up": set[str]()}
        for family in LanderCollector(run.lander).collect():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
        yield found


@pytest.mark.parametrize("name", ALERTS)
def test_alert_uses_existing_metrics_and_labels(name: str, metrics: dict[str, set[str]]) -> None:
    alert = ALERTS[name]
    names = used_names(alert["expr"])
    assert names.metrics
    assert names.metrics <= metrics.keys()
    known = set().union(*(metrics[each] for each in names.metrics), {"job", "instance"})
    assert names.labels <= known
    assert alert["expr"].count('{job="sluice-landers"}') == len(
        re.findall(r"\bsluice_lander_\w+|\bup\b", alert["expr"])
    )


@pytest.mark.parametrize("name", ALERTS)
def test_alert_is_complete(name: str) -> None:
    annotations = ALERTS[name]["annotations"]
    assert annotations.keys() == {"summary", "description", "runbook_url"}
    assert annotations["runbook_url"].endswith(f"/docs/user/pipeline-operate.html#{name.lower()}")


def test_manual_has_section_for_each_alert_in_order() -> None:
    text = MANUAL.read_text("utf-8")
    said = re.findall(r"^### (Sluice\w+)\n\n(Critical|Warning)\.", text, re.MULTILINE)
    assert said == [(name, alert["labels"]["severity"].capitalize()) for name, alert in ALERTS.items()]
