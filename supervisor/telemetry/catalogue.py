"""Catalogue of all metrics of /metrics: name, type, labels and meaning (brokers-and-edge.md H-4).

docs/user/metrics-list.md has the same list, as a test checks. The metrics of the first part have the names, types and
order of Dispatch 1.19 (management.md 10.2), so that its dashboards still work. Some gauges there end in `_total`.
"""

from typing import Final

from msgspec import Struct


class Definition(Struct, frozen=True):
    """Name, type, description and labels of a metric. `kind`: gauge, counter or histogram."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, about: str, *labels: str) -> Definition:
    return Definition(name, "gauge", about, labels)


def _counter(name: str, about: str, *labels: str) -> Definition:
    return Definition(name, "counter", about, labels)


_BLOCKED: Final = "Links that something has waited for, without credit, for more than 10 seconds."

ALIASES: Final = (
    _gauge("qdr_connections_total", "Open connections."),
    _gauge("qdr_links_total", "Attached links."),
    _gauge("qdr_addresses_total", "Entries of the address table, internal ones included."),
    _gauge("qdr_routers_total", "Other routers known in the network."),
    _gauge("qdr_link_routes_total", "Configured link routes."),
    _gauge("qdr_auto_links_total", "Configured auto links."),
    _counter("qdr_presettled_deliveries_total", "Deliveries that arrived settled."),
    _counter("qdr_dropped_presettled_deliveries_total", "Settled deliveries that were discarded."),
    _counter("qdr_accepted_deliveries_total", "Deliveries that ended for their sender as accepted."),
    _counter("qdr_released_deliveries_total", "Deliveries that ended for their sender as released."),
    _counter("qdr_rejected_deliveries_total", "Deliveries that ended for their sender as rejected."),
    _counter("qdr_modified_deliveries_total", "Deliveries that ended for their sender as modified."),
    _counter("qdr_deliveries_ingress_total", "Deliveries that arrived from clients."),
    _counter("qdr_deliveries_egress_total", "Deliveries that were sent to clients."),
    _counter("qdr_deliveries_transit_total", "Deliveries that were sent to other routers."),
    _counter("qdr_deliveries_ingress_route_container_total", "Deliveries that arrived from route containers."),
    _counter("qdr_deliveries_egress_route_container_total", "Deliveries that were sent to route containers."),
    _counter("qdr_deliveries_delayed_1sec_total", "Deliveries settled after more than 1 and at most 10 seconds."),
    _counter("qdr_deliveries_delayed_10sec_total", "Deliveries settled after more than 10 seconds."),
    _gauge("qdr_deliveries_stuck_total", "Deliveries that wait for more than 10 seconds."),
    _gauge("qdr_links_blocked_total", _BLOCKED),
    _counter("qdr_deliveries_redirected_to_fallback_total", "Deliveries that went to a fallback address."),
)

ROUTER: Final = (
    _gauge("sluice_build_info", "Always 1; the version of the router and of its Python.", "version", "python"),
    _gauge("sluice_router_info", "Always 1; the id of the router and its mode.", "id", "mode"),
    _gauge("sluice_ready", "1 if /readyz answers 200, else 0."),
    _counter(
        "sluice_reloads_total", "Reloads of the configuration: `success`, or `failure` if it was refused.", "outcome"
    ),
    _counter("sluice_cpu_periods_total", "Periods in which the control group that limits the router's cores had work."),
    _counter(
        "sluice_cpu_throttled_periods_total", "Periods of these in which the kernel stopped the group at its limit."
    ),
    _counter(
        "sluice_trace_spans_total",
        "Spans of traced deliveries: `recorded`, `dropped` at a bound of a worker, `exported`, `unexported` if the "
        "collector did not get them.",
        "result",
    ),
    _counter(
        "sluice_otlp_records_total",
        "Spans (`traces`), log records (`logs`) and data points (`metrics`) for a collector of OpenTelemetry: "
        "`exported`, or `unexported` if the collector did not get them.",
        "signal",
        "result",
    ),
)

WORKERS: Final = (
    _gauge("sluice_worker_up", "1 if the worker serves, 0 while it starts, hangs or is replaced.", "worker"),
    _gauge("sluice_worker_silent_seconds", "Time for which the worker has not responded; 0 if it responds.", "worker"),
    _counter("sluice_worker_restarts_total", "Replacements of the worker's process.", "worker"),
    _counter("sluice_worker_cpu_seconds_total", "Processor time of the worker's process.", "worker"),
    _gauge("sluice_worker_resident_memory_bytes", "Memory of the worker's process, shared parts included.", "worker"),
    _gauge("sluice_worker_connections", "Connections that the worker holds.", "worker"),
    _gauge("sluice_worker_links", "Links that the worker holds.", "worker"),
    _gauge("sluice_worker_buffered_bytes", "Octets of messages that the worker holds.", "worker"),
    _gauge("sluice_worker_buffered_limit_bytes", "Octets of messages that the worker may hold.", "worker"),
    _gauge("sluice_worker_windows_shut", "Sessions whose senders wait for slow receivers.", "worker"),
    _counter(
        "sluice_worker_given_up_total",
        "Links whose messages were dropped at the memory limit, and connections closed there for not settling.",
        "worker",
    ),
    _counter("sluice_worker_wakes_total", "Wakes of the worker's event loop with work to do.", "worker"),
    _counter("sluice_worker_signals_total", "Times that the worker woke another, sleeping worker.", "worker"),
    _counter(
        "sluice_worker_shared_wakes_total",
        "Times that outcomes waited for another worker, which woke by itself in time.",
        "worker",
    ),
    _counter("sluice_worker_failed_checks_total", "Failed assertions: faults of the router.", "worker"),
    _gauge("sluice_worker_table_lag_epochs", "Changes of the address table not acknowledged yet.", "worker"),
    _gauge("sluice_ring_used_bytes", "Octets written to a ring and not yet read.", "producer", "consumer"),
    _counter("sluice_ring_written_bytes_total", "Octets passed from one worker to another.", "producer", "consumer"),
    _gauge("sluice_ring_size_bytes", "Room of each ring between two workers."),
)

DELIVERIES: Final = (
    _counter("sluice_deliveries_total", "Deliveries by direction; a multicast counts once in and once for "
             "each copy out.", "worker", "direction"),
    _counter("sluice_deliveries_ended_total", "Deliveries from clients by how they ended, each once: the outcome that "
             "the sender got, `none` (settled without one), `presettled`.", "worker", "outcome"),
    _counter("sluice_deliveries_dropped_total", "Deliveries from clients with no such end: `producer_lost` (before "
             "the last octet arrived), `unfinished` (the worker of their sender crashed).", "worker", "reason"),
    _counter("sluice_presettled_dropped_total", "Presettled deliveries, or copies of one, that were discarded, by "
             "reason; each delivery has also ended.", "worker", "reason"),
    _counter("sluice_deliveries_redirected_total", "Deliveries that went to a fallback address.", "worker"),
    Definition("sluice_delivery_seconds", "histogram", "Time from an unsettled delivery's arrival to its settlement."),
)  # fmt: skip

# In the order of LINK_SUMS.
LINKS: Final = (
    _gauge("sluice_links", "Attached links; `in`: clients send, `out`: clients receive.", "kind", "role", "direction"),
    _gauge("sluice_links_without_credit", "Links without credit now.", "kind", "role", "direction"),
    _gauge("sluice_links_blocked", _BLOCKED, "kind", "role", "direction"),
    _gauge("sluice_links_undelivered_deliveries", "Deliveries that wait to be sent.", "kind", "role", "direction"),
    _gauge("sluice_links_unsettled_deliveries", "Deliveries that wait to be settled.", "kind", "role", "direction"),
    _gauge("sluice_links_stuck_deliveries", "Undelivered and unsettled deliveries that have waited for more than 10 "
           "seconds.", "kind", "role", "direction"),
)  # fmt: skip

STALLS: Final = (
    _gauge("sluice_links_stalled", "Links on which nothing moves, by the reason for it, as in `sluice explain`.",
           "reason"),
)  # fmt: skip

ADDRESSES: Final = (
    _counter("sluice_address_deliveries_total", "Deliveries of an address by direction.", "address", "phase",
             "direction"),
    _counter("sluice_address_redirected_total", "Deliveries that went to the fallback address instead.", "address",
             "phase"),
    _gauge("sluice_address_consumers", "Links that receive from an address.", "address", "phase"),
    _gauge("sluice_address_producers", "Links that send to an address.", "address", "phase"),
    _gauge("sluice_address_undelivered_deliveries", "Deliveries that wait for the consumers of an address.", "address",
           "phase"),
    _gauge("sluice_addresses_shown", "Addresses with series of their own; the rest is in `other`."),
)  # fmt: skip

TAPS: Final = (
    _counter("sluice_tap_selected_total", "Messages that a tap was to copy.", "tap"),
    _counter("sluice_tap_accepted_total", "Copies that a consumer accepted.", "tap"),
    _counter("sluice_tap_rejected_total", "Copies that a consumer rejected.", "tap"),
    _counter("sluice_tap_missed_total", "Messages of which no consumer has taken a copy: `returned` (released or "
             "modified), `without_consumer`, `beyond_bounds` (too many copies were not settled), `too_long`, `stalled` "
             "(copies of other messages waited too long for it).", "tap", "reason"),
    _counter("sluice_tap_address_missed_total", "Messages of which no consumer has taken a copy, by the address that "
             "they were sent to: the first 64 addresses of each tap with any; the rest is in `other`.",
             "tap", "address"),
)  # fmt: skip

LISTENERS: Final = (
    _gauge("sluice_listener_up", "1 if the listener takes connections.", "listener", "role", "http"),
    _gauge("sluice_listener_connections", "Open AMQP connections that the listener accepted.", "listener", "role"),
    _counter("sluice_connections_accepted_total", "AMQP connections that were accepted."),
    _counter("sluice_accept_pauses_total", "Times that connecting clients waited, some milliseconds each, because "
             "too many connected at once while established clients were active."),
    _gauge("sluice_connections", "Accepted AMQP connections that are there, including those that are not open yet."),
    _gauge("sluice_connections_limit", "Accepted AMQP connections that the router allows: `maxConnections` of the "
           "policy."),
    _gauge("sluice_tls_certificate_expiry_timestamp_seconds", "When the first certificate of an sslProfile expires, "
           "in seconds since the epoch.", "profile"),
    _gauge("sluice_tls_profile_current", "1 if the newest files of an sslProfile are in use, 0 if they have a fault.",
           "profile"),
)  # fmt: skip

USERS: Final = (
    _gauge("sluice_user_connections", "Open connections of clients, by user.", "user"),
    _gauge("sluice_user_links", "Attached links of clients, by user; `in`: clients send, `out`: clients receive.",
           "user", "direction"),
    _counter("sluice_user_deliveries_total", "Deliveries that clients have sent (`in`) or received (`out`), by user.",
             "user", "direction"),
    _counter("sluice_user_octets_total", "Octets of messages that clients have sent (`in`) or received (`out`), by "
             "user.", "user", "direction"),
    _counter("sluice_user_refused_total", "Connections, sessions, links and messages that the policy has refused, by "
             "user.", "user"),
    _gauge("sluice_vhost_client_connections", "Open connections of clients, by vhost.", "vhost"),
    _gauge("sluice_vhost_client_links", "Attached links of clients, by vhost.", "vhost", "direction"),
    _counter("sluice_vhost_client_deliveries_total", "Deliveries that clients have sent or received, by vhost.",
             "vhost", "direction"),
    _counter("sluice_vhost_client_octets_total", "Octets of messages that clients have sent or received, by vhost.",
             "vhost", "direction"),
)  # fmt: skip

_AUTO_LINK: Final = ("auto_link", "address", "direction", "connection", "container")
_LINK_ROUTE: Final = ("link_route", "address", "direction", "connection", "container")

BROKERS: Final = (
    _gauge("sluice_connector_up", "1 if a connection of the connector is open, 0 if it is down.", "connector", "role"),
    _counter("sluice_connector_attempts_total", "Attempts to open a connection.", "connector", "role"),
    _gauge("sluice_auto_links", "Auto links by state.", "state"),
    _gauge("sluice_auto_link_up", "1 if the auto link is active.", *_AUTO_LINK),
    _counter("sluice_auto_link_attempts_total", "Attaches that the router has sent for the auto link.", *_AUTO_LINK),
    _gauge("sluice_link_routes", "Configured link routes by state.", "state"),
    _gauge("sluice_link_route_up", "1 if a container is connected for the link route.", *_LINK_ROUTE),
    _counter("sluice_link_route_attempts_total", "Links that went to a container of the link route.", *_LINK_ROUTE),
    _counter("sluice_link_route_refusals_total", "Links that a container of the link route refused or ended with an "
             "error.", *_LINK_ROUTE),
)  # fmt: skip

LOGINS: Final = (
    _counter("sluice_logins_failed_total", "Failed logins, by listener and by the mechanism that the client chose "
             "(`none`: none of those offered).", "listener", "mechanism"),
    _counter("sluice_logins_failed_by_host_total", "Failed logins by remote host. The hosts with the latest failures "
             "have series of their own, the rest is in `other`.", "host"),
)  # fmt: skip

POLICY: Final = (
    _counter("sluice_policy_denied_total", "Connections, sessions, links and messages that the policy has refused, by "
             "vhost and group (empty where there is none) and by reason.", "vhost", "group", "reason"),
    _counter("sluice_policy_unknown_vhost_total", "Connections of clients that were refused because no vhost has their "
             "hostname."),
    _gauge("sluice_vhost_connections", "Connections of a vhost (group empty), or of one of its groups with shared "
           "limits.", "vhost", "group"),
    _gauge("sluice_vhost_links", "Links of a vhost or group with shared limits.", "vhost", "group"),
    _gauge("sluice_vhost_addresses", "Different addresses of the links of a vhost or group with shared limits.",
           "vhost", "group"),
    _gauge("sluice_vhost_buffered_octets", "Octets that the router holds of messages from a vhost or group, under "
           "`maxBufferedOctets`.", "vhost", "group"),
    _counter("sluice_vhost_messages_total", "Messages sent by clients of a vhost or group with shared limits.",
             "vhost", "group"),
    _counter("sluice_vhost_octets_total", "Octets of messages sent by clients of a vhost or group with shared limits.",
             "vhost", "group"),
    _counter("sluice_vhost_credit_held_back_total", "Times that a shared limit held back credit or a window.",
             "vhost", "group"),
    _gauge("sluice_vhost_limit", "`maxConnections` of a vhost, and shared limits of a vhost or group, by attribute.",
           "vhost", "group", "limit"),
)  # fmt: skip

AUDIT: Final = (
    _counter("sluice_audit_lines_total", "Lines that were written to audit logs."),
    _counter("sluice_audit_dropped_total", "Lines that were lost because an audit log could not be written."),
)

TELEMETRY: Final = (
    _counter("sluice_telemetry_rows_lost_total", "Rows of telemetry that were lost because their folder could not be "
             "written."),
)  # fmt: skip

TABLE: Final = (
    _counter("sluice_table_epochs_total", "Changes of the address table that were published."),
    _gauge("sluice_table_lag_epochs", "Changes that not all workers have acknowledged."),
    _gauge("sluice_table_lag_seconds", "Age of the oldest change that not all workers have acknowledged."),
    _gauge("sluice_table_addresses", "Entries of the address table."),
    _gauge("sluice_table_addresses_limit", "Entries that the address table has room for."),
)

NETWORK: Final = (
    _gauge("sluice_network_routers", "Other routers of the network that are known."),
    _gauge("sluice_network_routers_reachable", "Other routers of the network that are reachable."),
    _counter("sluice_network_path_changes_total", "Paths to other routers found, changed or lost."),
    _counter("sluice_network_messages_total", "Messages of the protocol between routers.", "direction"),
)

EDGE: Final = (
    _gauge("sluice_edge_uplinks", "At an edge router: open connections to interior routers, `active` ones and those "
           "that are `waiting` to be the uplink.", "state"),
    _counter("sluice_edge_uplink_changes_total", "At an edge router: connections that became the uplink, or ended as "
             "such.", "change"),
    _gauge("sluice_edge_addresses", "At an edge router: addresses announced to its interior router, because of "
           "`consumers` or `producers` here.", "users"),
    _gauge("sluice_edge_lookups_waiting", "At an edge router: attaches that wait for the answer to a look-up."),
    _counter("sluice_edge_lookups_unanswered_total", "At an edge router: look-ups without a usable answer in time."),
    _gauge("sluice_edge_router_connections", "At an interior router: open connections of an edge router.", "edge"),
    _gauge("sluice_edge_router_addresses", "At an interior router: addresses with consumers at an edge router.",
           "edge"),
    _counter("sluice_edge_router_heartbeats_missed_total", "At an interior router: heartbeats of an edge router that "
             "did not come in time.", "edge"),
    _gauge("sluice_edge_peer_connections", "At an edge router: open connections of role inter-edge to another edge "
           "router.", "edge"),
    _gauge("sluice_edge_peer_addresses", "At an edge router: addresses with consumers `here` that were announced to "
           "another edge router, and with consumers `there`, at that router.", "edge", "users"),
)  # fmt: skip

MEMORY: Final = (
    _gauge("sluice_pool_held_bytes", "Memory of what a pool has in use, as in `allocator` rows.", "pool"),
    _gauge("sluice_pool_taken_bytes", "Memory allocated to a pool so far.", "pool"),
    _gauge("sluice_worker_links_limit", "Links that each worker has room for."),
    _gauge("sluice_region_size_bytes", "Address space of the memory that the processes share; most is never used."),
    _gauge("sluice_region_resident_bytes", "Memory in use by what the processes share."),
)

HTTP: Final = (
    _counter("sluice_http_requests_total", "Answered HTTP requests.", "page", "code"),
    _counter("sluice_http_refused_total", "HTTP connections ended without an answer to a request.", "reason"),
    _gauge("sluice_http_connections", "Open HTTP connections."),
    _gauge("sluice_scrape_seconds", "Processor time of the previous page."),
)

# Metrics of the supervisor's process, made by prometheus-client.
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
    ("Stalls", STALLS),
    ("Addresses", ADDRESSES),
    ("Taps", TAPS),
    ("Listeners", LISTENERS),
    ("Brokers", BROKERS),
    ("Users and vhosts", USERS),
    ("Logins", LOGINS),
    ("Policy", POLICY),
    ("Audit log", AUDIT),
    ("Telemetry", TELEMETRY),
    ("Address table", TABLE),
    ("Network of routers", NETWORK),
    ("Edge routers", EDGE),
    ("Memory", MEMORY),
    ("HTTP", HTTP),
    ("The supervisor's process", PROCESS),
    ("Names of Dispatch 1.19", ALIASES),
)
DEFINITIONS: Final = {each.name: each for _, group in GROUPS for each in group}
