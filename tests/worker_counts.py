"""Worker counts of the routers in a test, and grouping of tests by process of pytest-xdist.

Routers have three workers. A module in which crossing workers matters (credit, outcomes, forwarding, streams, loss)
sets `WORKER_COUNTS = (1, 3)`, and its tests run once with each count. The system and the interoperability tests import
both hooks in their conftest.py.
"""

from __future__ import annotations

import pytest

#: Fixtures that take a number of workers.
COUNTED = ("workers", "_shared", "_two_routers", "_four", "_scoped", "_mesh", "_network", "site", "shared_router")
#: Fixtures that are made once in a process, for all modules.
IN_PROCESS = frozenset({"_chain", "_middle", "_triangle", "_solo", "artemis", "rabbitmq"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with each worker count of their module. A test may parametrize these fixtures itself."""
    counts = getattr(metafunc.module, "WORKER_COUNTS", (3,))
    chosen: set[str] = set()
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0]
        chosen.update(names.replace(" ", "").split(",") if isinstance(names, str) else names)
    for name in COUNTED:
        if name in metafunc.fixturenames and name not in chosen:
            ids = [f"{count}-worker{'s' if count > 1 else ''}" for count in counts]
            metafunc.parametrize(name, counts, ids=ids, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that share a module's or a process's fixtures in one process (--dist loadgroup). Spread all others."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        fixtures = item._fixtureinfo.name2fixturedefs
        in_process = sorted(IN_PROCESS & fixtures.keys())
        if not in_process and all(found[-1].scope != "module" for found in fixtures.values()):
            continue
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        counts = [str(parameters[name]) for name in COUNTED if name in parameters]
        place = in_process[0] if in_process else item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group("-".join([place, *counts])))
