"""Health checks and metrics of connectors, auto links and link routes: what they show, and what counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.runtime.availability import Availability, ConnectorStates
from sluice.supervisor.telemetry import broker_metrics
from sluice.supervisor.telemetry.broker_checks import MAX_CONNECTORS, MAX_NAMES, check_brokers
from sluice.supervisor.telemetry.broker_metrics import add_brokers
from sluice.supervisor.telemetry.health_check import HealthCheckResult
from sluice.supervisor.telemetry.page import Families
from tests.unit.supervisor.adjustable_clock import AdjustableClock
from tests.unit.supervisor.harness import configuration_text

CONNECTOR = "connector {\n name: b\n role: route-container\n%s}\n"
AUTO_LINK = "autoLink {\n name: l%d\n address: q\n direction: out\n connection: b\n}\n"
LINK_ROUTE = "linkRoute {\n prefix: r\n direction: in\n containerId: c\n}\n"
QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})


class RouterWithBroker:
    """Core of a router whose broker is down, and its connectors."""

    def __init__(self, text: str) -> None:
        configuration = load_text("router.conf", configuration_text() + text)
        self.core = RouterCore(configuration, ProcessLog(QUIET), 1000, lambda number: None)
        self.core.auto_links.start(configuration)
        self.clock = AdjustableClock()
        self.one = Availability("b", self.clock)
        self.connectors: ConnectorStates = [(config, self.one) for config in configuration.connectors]

    def checks(self) -> list[HealthCheckResult]:
        return list(check_brokers(self.core, self.connectors))

    def samples(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of all samples by the name of their metric."""
        families = Families()
        add_brokers(families, self.core, self.connectors)
        found: dict[str, list[dict[str, str]]] = {}
        for metric in families.metrics:
            for sample in metric.samples:  # type: ignore[union-attr]
                found.setdefault(sample.name, []).append(sample.labels)
        return found


def test_router_without_brokers_has_no_checks() -> None:
    assert RouterWithBroker("").checks() == []


@pytest.mark.parametrize("required", [False, True])
def test_broker_that_is_down_counts_if_required(required: bool) -> None:
    router = RouterWithBroker(CONNECTOR % ("readyWithout: no\n" if required else "") + AUTO_LINK % 0 + LINK_ROUTE)
    router.one.attempts = 1
    router.one.change(False, "Connection refused")
    router.clock.now += 12.4
    assert router.checks() == [
        HealthCheckResult("connector b", False, "down for 12 s, 1 attempt (Connection refused)", required),
        HealthCheckResult("auto links", False, "0 of 1 are active: 'l0' is not", required),
        HealthCheckResult("link routes", False, "0 of 1 are active: 'linkRoute/0' is not", False),
    ]
    router.one.change(True, "")
    assert router.checks()[0] == HealthCheckResult("connector b", True, "up for 0 s", required)


@pytest.mark.parametrize(("mode", "role"), [("interior", "inter-router"), ("edge", "edge"), ("edge", "inter-edge")])
@pytest.mark.parametrize("required", [False, True])
def test_router_that_is_not_connected_is_named_and_counts_if_required(mode: str, role: str, required: bool) -> None:
    own = f"router {{\n mode: {mode}\n id: A\n}}\n"
    more = "readyWithout: no\n" if required else ""
    configuration = load_text("router.conf", own + CONNECTOR.replace("route-container", role) % more)
    core = RouterCore(configuration, ProcessLog(QUIET), 1000, lambda number: None)
    down = Availability("b", AdjustableClock())
    down.change(False, "Connection refused")
    (check,) = check_brokers(core, [(config, down) for config in configuration.connectors])
    assert check == HealthCheckResult("connector b", False, "down for 0 s, 0 attempts (Connection refused)", required)


def test_generated_name_of_auto_link_has_direction_and_address() -> None:
    router = RouterWithBroker(CONNECTOR % "" + AUTO_LINK.replace(" name: l%d\n", ""))
    assert router.checks()[1].text == "0 of 1 are active: 'autoLink/0' (out, q) is not"


def test_texts_of_checks_are_bounded() -> None:
    router = RouterWithBroker(CONNECTOR % "" + "".join(AUTO_LINK % number for number in range(MAX_NAMES + 3)))
    (config, _) = router.connectors[0]
    many = [(replace(config, name=f"n{number}"), router.one) for number in range(MAX_CONNECTORS + 10)]
    router.connectors = [*many, (replace(config, name="needed", ready_without=False), router.one)]
    checks = router.checks()
    assert len(checks) == MAX_CONNECTORS + 1
    assert checks[0].name == "connector needed", "those that count are never left out"
    assert checks[-1].text.endswith(f"'l{MAX_NAMES - 1}' is not and 3 more")


def test_series_of_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_metrics, "MAX_SERIES", 2)
    router = RouterWithBroker(CONNECTOR % "" + "".join(AUTO_LINK % number for number in range(5)) + LINK_ROUTE)
    found = router.samples()
    assert [labels["auto_link"] for labels in found["sluice_auto_link_up"]] == ["l0", "l1"]
    assert found["sluice_link_route_up"] == [
        {"link_route": "linkRoute/0", "address": "r", "direction": "in", "connection": "", "container": "c"}
    ]
    assert [labels["state"] for labels in found["sluice_link_routes"]] == ["active", "inactive"]


def test_auto_links_with_equal_labels_share_series() -> None:
    router = RouterWithBroker(CONNECTOR % "" + AUTO_LINK % 0)
    (config,) = [config for config, _, _ in router.core.auto_links.states()]
    router.core.auto_links.replace([config, replace(config, identity="other")])
    assert len(router.core.auto_links.states()) == 2
    assert len(router.samples()["sluice_auto_link_up"]) == 1
