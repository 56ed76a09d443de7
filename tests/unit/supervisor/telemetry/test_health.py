"""Health checks: their conditions and the reasons that they report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.auth.messages import ProviderState
from sluice.supervisor.children.worker import WorkerStage
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.telemetry.health import (
    LAG_STEP,
    LIVE_WITHOUT_WORKERS,
    READY_LAG,
    Health,
    Lag,
    ListenerState,
)
from sluice.supervisor.telemetry.health_check import HealthCheckResult
from sluice.supervisor.tls.profiles import CredentialsState
from tests.unit.supervisor.adjustable_clock import AdjustableClock
from tests.unit.supervisor.telemetry.metrics_router import MetricsRouter


@pytest.fixture
def clock() -> AdjustableClock:
    return AdjustableClock()


def health(router: MetricsRouter, clock: Callable[[], float], *states: ListenerState, draining: bool = False) -> Health:
    return Health(router.core, router.lag, lambda: states, lambda: draining, clock)


def failed(checks: list[HealthCheckResult]) -> list[HealthCheckResult]:
    return [check for check in checks if not check.passed]


def listening(up: bool) -> ListenerState:
    return ListenerState("amqp", "0.0.0.0:5672", "normal", http=False, up=up)


def test_healthy_router_passes_all_checks(router: MetricsRouter, clock: AdjustableClock) -> None:
    checked = health(router, clock, listening(up=True))
    assert checked.ready
    assert [check.name for check in checked.readiness()] == ["running", "workers", "listener amqp", "table"]
    assert failed(checked.liveness()) == []


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        (WorkerStage.FORKING, "1 of 2 serve: worker 1 is being started"),
        (WorkerStage.STARTING, "1 of 2 serve: worker 1 is starting"),
        (WorkerStage.LIVE, "1 of 2 serve: worker 1 is about to serve"),
        (WorkerStage.DEAD, "1 of 2 serve: worker 1 has crashed and is being replaced"),
    ],
)
def test_worker_that_does_not_serve_fails_readiness(
    router: MetricsRouter, clock: AdjustableClock, stage: WorkerStage, reason: str
) -> None:
    router.core.workers[1].stage = stage
    checked = health(router, clock)
    assert failed(checked.readiness()) == [HealthCheckResult("workers", False, reason)]
    assert failed(checked.liveness()) == []


def test_router_without_workers_is_not_ready(router: MetricsRouter, clock: AdjustableClock) -> None:
    router.core.workers.clear()
    assert not health(router, clock).ready


def test_closed_listener_fails_readiness(router: MetricsRouter, clock: AdjustableClock) -> None:
    checked = health(router, clock, listening(up=False))
    assert failed(checked.readiness()) == [
        HealthCheckResult("listener amqp", False, "0.0.0.0:5672 takes no connections")
    ]


@pytest.mark.parametrize(("usable", "ready"), [(True, True), (False, False)])
def test_profile_with_fault_is_warning_while_its_credentials_are_usable(
    router: MetricsRouter, clock: AdjustableClock, monkeypatch: pytest.MonkeyPatch, usable: bool, ready: bool
) -> None:
    state = CredentialsState("p", usable, sound=False, text="in use, the certificate has expired")
    monkeypatch.setattr(router.core.tls, "states", lambda: [state])
    checked = health(router, clock)
    assert failed(checked.readiness()) == [
        HealthCheckResult("sslProfile p", False, "in use, the certificate has expired", counts=not usable)
    ]
    assert checked.ready == ready


@pytest.mark.parametrize(("usable", "ready"), [(True, True), (False, False)])
def test_users_file_with_fault_is_warning_while_its_last_version_is_usable(
    router: MetricsRouter, clock: AdjustableClock, monkeypatch: pytest.MonkeyPatch, usable: bool, ready: bool
) -> None:
    state = ProviderState("saslUsers", "people", usable, False, "users: line 1: the user has no verifier")
    monkeypatch.setattr(router.core.authentication, "states", lambda: [state])
    checked = health(router, clock)
    assert failed(checked.readiness()) == [
        HealthCheckResult("saslUsers people", False, "users: line 1: the user has no verifier", counts=not usable)
    ]
    assert checked.ready == ready


def test_refused_reload_is_warning_with_first_reason(router: MetricsRouter, clock: AdjustableClock) -> None:
    trail = router.core.audit.trail
    trail.reloaded("SIGHUP", "router.conf", ChangeError(400, "router.conf:3: Unknown attribute 'x'\nrouter.conf:9: y"))
    checked = health(router, clock)
    assert failed(checked.readiness()) == [
        HealthCheckResult(
            "configuration", False, "the last reload was refused: router.conf:3: Unknown attribute 'x'", counts=False
        )
    ]
    assert checked.ready


def test_log_that_cannot_be_written_is_warning(
    router: MetricsRouter, clock: AdjustableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=127, output="/dev/full")}))
    monkeypatch.setattr(router.core.logging, "lost_lines", log.lost_lines)
    checked = health(router, clock)
    assert failed(checked.readiness()) == []
    for _ in range(3):
        log.error("SERVER", "a line")
    text = "it cannot be written, 3 lines of the supervisor are lost"
    assert failed(checked.readiness()) == [HealthCheckResult("log /dev/full", False, text, counts=False)]
    assert checked.ready
    log.close()


def test_shutdown_fails_readiness(router: MetricsRouter, clock: AdjustableClock) -> None:
    checked = health(router, clock, draining=True)
    assert failed(checked.readiness()) == [HealthCheckResult("running", False, "the router is shutting down")]
    assert failed(checked.liveness()) == []


def test_liveness_fails_after_long_time_without_workers(router: MetricsRouter, clock: AdjustableClock) -> None:
    checked = health(router, clock)
    clock.now += 10 * LIVE_WITHOUT_WORKERS  # no check in the meantime
    for worker in router.core.workers.values():
        worker.stage = WorkerStage.DEAD
    assert failed(checked.liveness()) == []
    clock.now += LIVE_WITHOUT_WORKERS - 1
    assert failed(checked.liveness()) == []
    clock.now += 1
    assert failed(checked.liveness()) == [
        HealthCheckResult("workers", False, "no worker has served for 60 seconds; this check fails after 60")
    ]
    router.core.workers[0].stage = WorkerStage.SERVING
    assert failed(checked.liveness()) == []
    router.core.workers[0].stage = WorkerStage.DEAD
    assert failed(checked.liveness()) == []  # the time starts again


def test_worker_behind_with_table_fails_readiness(router: MetricsRouter, clock: AdjustableClock) -> None:
    lag = router.lag = Lag(clock)
    checked = health(router, clock)
    router.core.table.open_mobile("a", 0, router.core.settings.current.default)
    delta = router.core.take_delta()
    assert delta is not None
    lag.published(delta[0])
    clock.now += READY_LAG - LAG_STEP
    assert failed(checked.readiness()) == []
    clock.now += 2 * LAG_STEP
    late = HealthCheckResult("table", False, f"epoch {delta[0]} unacknowledged for 2 s")
    assert failed(checked.readiness()) == [late]
    router.core.journal.acknowledge(0, delta[0])
    assert len(failed(checked.readiness())) == 1
    router.core.journal.acknowledge(1, delta[0])
    assert failed(checked.readiness()) == []


def test_lag_is_age_of_oldest_pending_epoch(clock: AdjustableClock) -> None:
    lag = Lag(clock)
    assert lag.seconds(0, 0) == 0
    for epoch in range(1, 5001):
        lag.published(epoch)
        clock.now += LAG_STEP / 4
    assert lag.seconds(5000, 5000) == 0
    clock.now += 100
    lag.published(5001)
    lag.published(5002)  # in the same step
    clock.now += 1
    assert lag.seconds(5000, 5002) == pytest.approx(1)
    assert lag.seconds(5001, 5002) == pytest.approx(1)
    assert lag.seconds(5002, 5002) == 0
