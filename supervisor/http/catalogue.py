"""Every metric of /metrics: its name, type, labels and meaning. docs/user/metrics.md lists the same (a test compares).

Names, types and order of the first part are those of Dispatch 1.19 (management specification 10.2), so that its
dashboards go on working; the types are as they were, though some gauges end in `_total`.
"""
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. `kind`: gauge, counter or histogram."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, about: str, *labels: str) -> Definition:
    return Definition(name, "gauge", about, labels)


def _counter(name: str, about: str, *labels: str) -> Definition:
    return Definition(name, "counter", about, labels)


ALIASES: Final = (
    _gauge("qdr_connections_total", "Open connections."),
    _gauge("qdr_links_total", "Attached links."),
    _gauge("qdr_addresses_total", "Entries of the address table, internal ones included."),
    _gauge("qdr_routers_total", "Other routers known in the network."),
    _gauge("qdr_link_routes_total", "Configured link routes."),
    _gauge("qdr_auto_links_total", "Configured auto links."),
    _counter("qdr_presettled_deliveries_total", "Deliveries that arrived settled."),
    _counter("qdr_dropped_presettled_deliveries_total", "Settled deliveries that were discarded."),
    _counter("qdr_accepted_deliveries_total", "Deliveries whose sender was told accepted."),
    _counter("qdr_released_deliveries_total", "Deliveries whose sender was told released."),
    _counter("qdr_rejected_deliveries_total", "Deliveries whose sender was told rejected."),
    _counter("qdr_modified_deliveries_total", "Deliveries whose sender was told modified."),
    _counter("qdr_deliveries_ingress_total", "Deliveries that arrived from clients."),
    _counter("qdr_deliveries_egress_total", "Deliveries that were sent to clients."),
    _counter("qdr_deliveries_transit_total", "Deliveries that were sent to other routers."),
    _counter("qdr_deliveries_ingress_route_container_total", "Deliveries that arrived from route containers."),
    _counter("qdr_deliveries_egress_route_container_total", "Deliveries that were sent to route containers."),
    _counter("qdr_deliveries_delayed_1sec_total", "Deliveries settled after more than 1 and at most 10 seconds."),
    _counter("qdr_deliveries_delayed_10sec_total", "Deliveries settled after more than 10 seconds."),
    _gauge("qdr_deliveries_stuck_total", "Deliveries that wait for more than 10 seconds."),
    _gauge("qdr_links_blocked_total", "Links without credit for more than 10 seconds."),
    _counter("qdr_deliveries_redirected_to_fallback_total", "Deliveries that went to a fallback address."),
)

ROUTER: Final = (
    _gauge("sluice_build_info", "Always 1; the version of the router and of its Python.", "version", "python"),
    _gauge("sluice_router_info", "Always 1; the id of the router and its mode.", "id", "mode"),
    _gauge("sluice_ready", "1 if /readyz answers 200, else 0."),
)

WORKERS: Final = (
    _gauge("sluice_worker_up", "1 if the worker serves, 0 while it starts, does not react or is replaced.", "worker"),
    _gauge("sluice_worker_silent_seconds", "For how long the worker has not reacted; 0: it does.", "worker"),
    _counter("sluice_worker_restarts_total", "How often another process took the worker's place.", "worker"),
    _counter("sluice_worker_cpu_seconds_total", "Processor time of the worker's process.", "worker"),
    _gauge("sluice_worker_resident_memory_bytes", "Memory of the worker's process, shared parts included.", "worker"),
    _gauge("sluice_worker_connections", "Connections that the worker holds.", "worker"),
    _gauge("sluice_worker_links", "Links that the worker holds.", "worker"),
    _gauge("sluice_worker_buffered_bytes", "Octets of messages that the worker holds.", "worker"),
    _gauge("sluice_worker_buffered_limit_bytes", "Octets of messages that the worker may hold.", "worker"),
    _gauge("sluice_worker_windows_shut", "Sessions whose senders wait until receivers take something.", "worker"),
    _counter("sluice_worker_given_up_total", "Links whose messages were given up at the bound of memory.", "worker"),
    _counter("sluice_worker_wakes_total", "How often the worker's event loop had something to do.", "worker"),
    _counter("sluice_worker_failed_checks_total", "Assertions that did not hold: faults of the router.", "worker"),
    _gauge("sluice_worker_table_lag_epochs", "Changes of the address table not acknowledged yet.", "worker"),
    _gauge("sluice_ring_used_bytes", "Octets between two workers, written and not yet read.", "producer", "consumer"),
    _counter("sluice_ring_written_bytes_total", "Octets passed from one worker to another.", "producer", "consumer"),
    _gauge("sluice_ring_size_bytes", "Room of each ring between two workers."),
)

DELIVERIES: Final = (
    _counter("sluice_deliveries_total", "Deliveries by the way they took; a multicast counts once in and once for "
             "each copy out.", "worker", "direction"),
    _counter("sluice_deliveries_ended_total", "Deliveries from clients by how they ended, each once: outcome told to "
             "the sender, `none` (settled without one), `presettled`.", "worker", "outcome"),
    _counter("sluice_deliveries_dropped_total", "Deliveries from clients that came to no such end: `producer_lost` "
             "(before the last octet came), `unfinished` (the worker of their sender died).", "worker", "reason"),
    _counter("sluice_presettled_dropped_total", "Presettled deliveries, or copies of one, that were discarded, by "
             "reason; each delivery has also ended.", "worker", "reason"),
    _counter("sluice_deliveries_redirected_total", "Deliveries that went to a fallback address.", "worker"),
    Definition("sluice_delivery_seconds", "histogram", "Time from an unsettled delivery's arrival to its settlement."),
)  # fmt: skip

# In the order of LINK_SUMS.
LINKS: Final = (
    _gauge("sluice_links", "Attached links; `in`: clients send, `out`: clients receive.", "kind", "role", "direction"),
    _gauge("sluice_links_without_credit", "Links without credit now.", "kind", "role", "direction"),
    _gauge("sluice_links_blocked", "Links without credit for more than 10 seconds.", "kind", "role", "direction"),
    _gauge("sluice_links_undelivered_deliveries", "Deliveries that wait to be sent.", "kind", "role", "direction"),
    _gauge("sluice_links_unsettled_deliveries", "Deliveries that wait to be settled.", "kind", "role", "direction"),
    _gauge("sluice_links_stuck_deliveries", "Of both, those that wait for more than 10 seconds.", "kind", "role",
           "direction"),
)  # fmt: skip

ADDRESSES: Final = (
    _counter("sluice_address_deliveries_total", "Deliveries of an address by the way they took.", "address", "phase",
             "direction"),
    _counter("sluice_address_redirected_total", "Deliveries that went to the fallback address instead.", "address",
             "phase"),
    _gauge("sluice_address_consumers", "Links that receive from an address.", "address", "phase"),
    _gauge("sluice_address_producers", "Links that send to an address.", "address", "phase"),
    _gauge("sluice_address_undelivered_deliveries", "Deliveries that wait for the consumers of an address.", "address",
           "phase"),
    _gauge("sluice_addresses_shown", "Addresses with series of their own; the rest is in `other`."),
)  # fmt: skip

LISTENERS: Final = (
    _gauge("sluice_listener_up", "1 if the listener takes connections.", "listener", "role", "http"),
    _gauge("sluice_listener_connections", "Open AMQP connections that the listener accepted.", "listener", "role"),
    _counter("sluice_connections_accepted_total", "AMQP connections that were accepted."),
)  # fmt: skip

TABLE: Final = (
    _counter("sluice_table_epochs_total", "Changes of the address table that were published."),
    _gauge("sluice_table_lag_epochs", "Changes that not all workers have acknowledged."),
    _gauge("sluice_table_lag_seconds", "How long the oldest of these has waited."),
    _gauge("sluice_table_addresses", "Entries of the address table."),
    _gauge("sluice_table_addresses_limit", "Entries that the address table has room for."),
)

NETWORK: Final = (
    _gauge("sluice_network_routers", "Other routers of the network that are known."),
    _gauge("sluice_network_routers_reachable", "Those of them that there is a way to."),
    _counter("sluice_network_path_changes_total", "Ways to other routers found, changed or lost."),
    _counter("sluice_network_messages_total", "Messages of the protocol between routers.", "direction"),
)

MEMORY: Final = (
    _gauge("sluice_pool_held_bytes", "Memory of what a pool has in use, as in `allocator` rows.", "pool"),
    _gauge("sluice_pool_taken_bytes", "Memory that a pool was given so far.", "pool"),
    _gauge("sluice_worker_links_limit", "Links that each worker has room for."),
    _gauge("sluice_region_size_bytes", "Address space of the memory that the processes share; most is never used."),
    _gauge("sluice_region_resident_bytes", "Memory in use by what the processes share."),
)

HTTP: Final = (
    _counter("sluice_http_requests_total", "Answered HTTP requests.", "page", "code"),
    _counter("sluice_http_refused_total", "HTTP connections ended without an answer to a request.", "reason"),
    _gauge("sluice_http_connections", "Open HTTP connections."),
    _gauge("sluice_scrape_seconds", "Processor time that the last page before this one took."),
)

# Of the supervisor's process, made by prometheus-client.
PROCESS: Final = (
    _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes."),
    _gauge("process_resident_memory_bytes", "Resident memory size in bytes."),
    _gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
    _counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."),
    _gauge("process_open_fds", "Number of open file descriptors."),
    _gauge("process_max_fds", "Maximum number of open file descriptors."),
)

GROUPS: Final = (
    ("Router", ROUTER),
    ("Workers", WORKERS),
    ("Deliveries", DELIVERIES),
    ("Links", LINKS),
    ("Addresses", ADDRESSES),
    ("Listeners", LISTENERS),
    ("Address table", TABLE),
    ("Network of routers", NETWORK),
    ("Memory", MEMORY),
    ("HTTP", HTTP),
    ("The supervisor's process", PROCESS),
    ("Names of Dispatch 1.19", ALIASES),
)
DEFINITIONS: Final = {each.name: each for _, group in GROUPS for each in group}
