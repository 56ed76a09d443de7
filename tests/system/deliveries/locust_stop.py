"""Locustfile to run beside a scenario: ends the run as soon as enough requests of given kinds were counted.

The environment variable ENOUGH is a JSON list of [type, name, number].
"""

from __future__ import annotations

import json
import os
from typing import Any

import gevent
from locust import events
from locust.runners import WorkerRunner

LOOK_SECONDS = 0.1


def on_init(environment: Any, **_: Any) -> None:
    if not isinstance(environment.runner, WorkerRunner):
        gevent.spawn(quit_when_enough, environment, json.loads(os.environ["ENOUGH"]))


def quit_when_enough(environment: Any, enough: list[tuple[str, str, int]]) -> None:
    while any(environment.stats.get(name, kind).num_requests < number for kind, name, number in enough):
        gevent.sleep(LOOK_SECONDS)
    environment.runner.quit()


events.init.add_listener(on_init)
