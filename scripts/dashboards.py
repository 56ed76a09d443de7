"""Panels of the Grafana dashboards, by what an operator asks. `python -m scripts.make_dashboards` makes the files.

In an expression, ROUTER stands for the selector of one router, and NETWORK for that of all chosen routers. A panel of
the network names routers by their ids: NAMES joins a series with the id of its router.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Query(NamedTuple):
    """An expression, and the names of its series in the legend."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """A panel: the question that it answers, its queries, unit and kind.

    about: what the reader should know, and what is normal.
    thresholds: values from which the number is orange and red or, if the first one is higher, green and orange.
    """

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    about: str = ""
    thresholds: tuple[float, float] | None = None


class Row(NamedTuple):
    """A row of panels under a question."""

    title: str
    panels: tuple[Panel, ...]


RATE: Final = "[$__rate_interval]"
#: Selects addresses of clients. Those of the router itself, such as $management, have consumers that do not count.
CLIENTS: Final = 'address!~"_?[$].+"'
#: Multiplied with a series of several routers: adds their ids, and leaves out those that are not chosen.
NAMES: Final = 'on (job, instance) group_left (id) sluice_router_info{job="$job", id=~"$router"}'


def graph(title: str, unit: str, *queries: tuple[str, str], about: str = "") -> Panel:
    """Return a panel with lines over time; each query is an expression with its legend."""
    return Panel(title, tuple(Query(*query) for query in queries), unit, about=about)


def stat(title: str, unit: str, expr: str, thresholds: tuple[float, float] | None = None, about: str = "") -> Panel:
    """Return a panel with one number."""
    return Panel(title, (Query(expr),), unit, "stat", about, thresholds)


def percentiles(*shares: float) -> tuple[tuple[str, str], ...]:
    """Return the queries for percentiles of the time to settlement at one router."""
    buckets = f"sum by (le) (rate(sluice_delivery_seconds_bucket{{ROUTER}}{RATE}))"
    return tuple((f"histogram_quantile({share}, {buckets})", f"{share * 100:g} %") for share in shares)


def each(expr: str) -> str:
    """Return an expression for several routers, summed over all labels but the id of the router."""
    return f"sum by (id) ({expr} * {NAMES})"


ROUTER: Final = (
    Row("Is it up?", (
        stat("Ready", "bool_yes_no", "sluice_ready{ROUTER}", (1, 0.5), "If not, /readyz names the reason."),
        stat("Up for", "s", "time() - process_start_time_seconds{ROUTER}"),
        stat("Workers that serve", "percentunit", "avg(sluice_worker_up{ROUTER})", (1, 0.5)),
        stat("Listeners closed", "short", "count(sluice_listener_up{ROUTER} == 0) or vector(0)", (1, 2)),
        stat("First certificate expires in", "s",
             "min(sluice_tls_certificate_expiry_timestamp_seconds{ROUTER}) - time()", (7 * 86400, 86400),
             "Empty without an sslProfile."),
        Panel("Version", (Query("sluice_build_info{ROUTER}", "{{version}}"),), kind="name"),
    )),
    Row("Who is connected?", (
        graph("Connections by listener", "short",
              ("sluice_listener_connections{ROUTER}", "{{listener}} ({{role}})")),
        graph("New connections", "cps", (f"rate(sluice_connections_accepted_total{{ROUTER}}{RATE})", "accepted")),
        graph("Links", "short",
              ("sum by (role, direction) (sluice_links{ROUTER})", "{{role}} {{direction}}"),
              about="in: the peer sends. out: the peer receives."),
        graph("Failed logins", "cps",
              (f"sum by (host) (rate(sluice_logins_failed_by_host_total{{ROUTER}}{RATE}))", "{{host}}")),
        graph("Refused by policy", "cps",
              (f"sum by (reason) (rate(sluice_policy_denied_total{{ROUTER}}{RATE}))", "{{reason}}")),
        graph("Connections of vhosts", "short",
              ("sluice_vhost_connections{ROUTER}", "{{vhost}} {{group}}"),
              about="Vhosts and groups with shared limits only; empty without them."),
    )),
    Row("Which users and vhosts?", (
        graph("Busiest users", "cps",
              (f"topk(10, sum by (user) (rate(sluice_user_deliveries_total{{ROUTER}}{RATE})))", "{{user}}"),
              about="`other` stands for all users beyond `metricsUsers`."),
        graph("Connections by user", "short", ("topk(10, sluice_user_connections{ROUTER})", "{{user}}")),
        graph("Refused users", "cps", (f"rate(sluice_user_refused_total{{ROUTER}}{RATE}) > 0", "{{user}}")),
        graph("Octets by vhost", "Bps",
              (f"sum by (vhost, direction) (rate(sluice_vhost_client_octets_total{{ROUTER}}{RATE}))",
               "{{vhost}} {{direction}}"), about="Empty without a vhost policy."),
        graph("Refused for an unknown vhost", "cps",
              (f"rate(sluice_policy_unknown_vhost_total{{ROUTER}}{RATE})", "refused")),
    )),
    Row("What moves, and how fast?", (
        graph("Deliveries by direction", "cps",
              (f"sum by (direction) (rate(sluice_deliveries_total{{ROUTER}}{RATE}))", "{{direction}}")),
        graph("Time to settlement", "s", *percentiles(0.5, 0.95, 0.99, 0.999),
              about="From the arrival of an unsettled delivery to its settlement: the consumer's work is included."),
        graph("Deliveries in flight", "short",
              ('sum(sluice_deliveries_total{ROUTER, direction="ingress"}) - sum(sluice_deliveries_ended_total{ROUTER})'
               " - sum(sluice_deliveries_dropped_total{ROUTER})", "in flight")),
        graph("Busiest addresses", "cps",
              (f"topk(10, sum by (address) (rate(sluice_address_deliveries_total{{ROUTER, {CLIENTS}}}{RATE})))",
               "{{address}}")),
    )),
    Row("How do deliveries end?", (
        graph("Outcomes", "cps",
              (f"sum by (outcome) (rate(sluice_deliveries_ended_total{{ROUTER}}{RATE}))", "{{outcome}}")),
        graph("Share not accepted", "percentunit",
              (f'sum by (outcome) (rate(sluice_deliveries_ended_total{{ROUTER, outcome=~"rejected|released|modified"}}'
               f"{RATE})) / on () group_left sum(rate(sluice_deliveries_ended_total{{ROUTER}}{RATE}))",
               "{{outcome}}")),
        graph("Settled messages discarded", "cps",
              (f"sum by (reason) (rate(sluice_presettled_dropped_total{{ROUTER}}{RATE}))", "{{reason}}"),
              about="no_destination: nobody wanted the message."),
        graph("Ended without an outcome", "cps",
              (f"sum by (reason) (rate(sluice_deliveries_dropped_total{{ROUTER}}{RATE}))", "{{reason}}"),
              about="producer_lost: before the last octet came. unfinished: a worker crashed."),
        graph("Sent to a fallback address", "cps",
              (f"sum(rate(sluice_deliveries_redirected_total{{ROUTER}}{RATE}))", "redirected")),
    )),
    Row("What stalls?", (
        graph("Links that wait for credit", "short",
              ("sum by (role, direction) (sluice_links_blocked{ROUTER})", "{{role}} {{direction}}"),
              about="For more than ten seconds. `sluice explain` names the reason and the peer."),
        graph("Stalled links by reason", "short", ("sluice_links_stalled{ROUTER} > 0", "{{reason}}")),
        graph("Links without credit now", "short",
              ("sum by (role, direction) (sluice_links_without_credit{ROUTER})", "{{role}} {{direction}}")),
        graph("Deliveries that wait for more than ten seconds", "short",
              ("sum by (role, direction) (sluice_links_stuck_deliveries{ROUTER})", "{{role}} {{direction}}")),
        graph("Waiting to be sent, or to be settled", "short",
              ("sum(sluice_links_undelivered_deliveries{ROUTER})", "to be sent"),
              ("sum(sluice_links_unsettled_deliveries{ROUTER})", "to be settled")),
        graph("Longest queues", "short",
              (f"topk(10, sum by (address) (sluice_address_undelivered_deliveries{{ROUTER, {CLIENTS}}}))",
               "{{address}}")),
        graph("Senders that wait for slow receivers", "short",
              ("sum by (worker) (sluice_worker_windows_shut{ROUTER})", "worker {{worker}}"),
              about="Sessions whose windows are closed."),
        graph("Credit held back by quotas", "cps",
              (f"rate(sluice_vhost_credit_held_back_total{{ROUTER}}{RATE})", "{{vhost}} {{group}}"),
              about="Vhosts and groups with shared limits only; empty without them."),
    )),
    Row("How near are memory and limits?", (
        graph("Messages held, as a share of the limit", "percentunit",
              ("sluice_worker_buffered_bytes{ROUTER} / sluice_worker_buffered_limit_bytes{ROUTER}",
               "worker {{worker}}")),
        graph("Resident memory", "bytes",
              ("sluice_worker_resident_memory_bytes{ROUTER}", "worker {{worker}}"),
              ("process_resident_memory_bytes{ROUTER}", "supervisor"),
              ("sluice_region_resident_bytes{ROUTER}", "shared"),
              about="The shared part counts in each worker."),
        graph("Memory by pool", "bytes", ("topk(10, sluice_pool_held_bytes{ROUTER})", "{{pool}}")),
        graph("Places in use", "percentunit",
              ("max(sluice_worker_links{ROUTER}) / max(sluice_worker_links_limit{ROUTER})", "links of a worker"),
              ("sluice_table_addresses{ROUTER} / sluice_table_addresses_limit{ROUTER}", "addresses"),
              ("process_open_fds{ROUTER} / process_max_fds{ROUTER}", "files of the supervisor")),
        graph("Closed at the memory limit", "cps",
              (f"sum by (worker) (rate(sluice_worker_given_up_total{{ROUTER}}{RATE}))", "worker {{worker}}"),
              about="Links whose messages were dropped, and connections. Normal is 0."),
    )),
    Row("Are the workers well?", (
        graph("Processor time", "percentunit",
              (f"rate(sluice_worker_cpu_seconds_total{{ROUTER}}{RATE})", "worker {{worker}}"),
              (f"rate(process_cpu_seconds_total{{ROUTER}}{RATE})", "supervisor"),
              about="100 % is one core. A worker cannot use more."),
        graph("Connections by worker", "short", ("sluice_worker_connections{ROUTER}", "worker {{worker}}")),
        graph("Replacements and internal errors", "short",
              (f"sum(increase(sluice_worker_restarts_total{{ROUTER}}{RATE}))", "workers replaced"),
              (f"sum(increase(sluice_worker_failed_checks_total{{ROUTER}}{RATE}))", "internal errors"),
              about="Normal is 0."),
        graph("Not responding for", "s", ("sluice_worker_silent_seconds{ROUTER}", "worker {{worker}}")),
        graph("Changes of addresses wait for", "s", ("sluice_table_lag_seconds{ROUTER}", "all workers")),
        graph("Octets between workers", "Bps",
              (f"sum by (producer) (rate(sluice_ring_written_bytes_total{{ROUTER}}{RATE}))",
               "from worker {{producer}}"),
              about="Empty if the router has one worker."),
        graph("Fullest ring", "percentunit",
              ("max(sluice_ring_used_bytes{ROUTER}) / max(sluice_ring_size_bytes{ROUTER})", "in use"),
              about="Empty if the router has one worker."),
    )),
    Row("Are brokers there?", (
        stat("Connectors down", "short",
             "count(sluice_connector_up{ROUTER} == 0) or vector(0)", (1, 2), "Normal is 0."),
        stat("Auto links down", "short",
             'sum(sluice_auto_links{ROUTER, state!="active"}) or vector(0)', (1, 2), "Normal is 0."),
        stat("Link routes down", "short",
             'sum(sluice_link_routes{ROUTER, state!="active"}) or vector(0)', (1, 2), "Normal is 0."),
        graph("Attempts to connect", "cps",
              (f"rate(sluice_connector_attempts_total{{ROUTER}}{RATE})", "{{connector}}"),
              about="Normal is 0: connectors make no attempts while they are up."),
        graph("Links refused by brokers", "cps",
              (f"rate(sluice_link_route_refusals_total{{ROUTER}}{RATE})", "{{link_route}}"),
              about="Links of link routes that a broker refused or ended with an error."),
    )),
    Row("Are other routers reached?", (
        graph("Other routers", "short",
              ("sluice_network_routers{ROUTER}", "known"), ("sluice_network_routers_reachable{ROUTER}", "reachable")),
        graph("Paths found, changed or lost", "cps",
              (f"rate(sluice_network_path_changes_total{{ROUTER}}{RATE})", "changes")),
        graph("Links to other routers", "short",
              ('sum by (role, direction) (sluice_links{ROUTER, role=~"inter-router|edge|inter-edge"})',
               "{{role}} {{direction}}"), about="Empty if the router is alone."),
        graph("Uplinks of this edge router", "short", ("sluice_edge_uplinks{ROUTER}", "{{state}}"),
              about="Edge routers only."),
        graph("Look-ups without an answer", "cps",
              (f"rate(sluice_edge_lookups_unanswered_total{{ROUTER}}{RATE})", "unanswered"),
              about="Edge routers only."),
        graph("Connections of edge routers", "short", ("sluice_edge_router_connections{ROUTER}", "{{edge}}"),
              about="Interior routers only."),
        graph("Missed heartbeats of edge routers", "cps",
              (f"rate(sluice_edge_router_heartbeats_missed_total{{ROUTER}}{RATE})", "{{edge}}"),
              about="Interior routers only."),
    )),
    Row("Are certificates and records in order?", (
        graph("Certificates expire in", "s",
              ("sluice_tls_certificate_expiry_timestamp_seconds{ROUTER} - time()", "{{profile}}"),
              about="Empty without an sslProfile."),
        graph("Newest files in use", "bool_yes_no", ("sluice_tls_profile_current{ROUTER}", "{{profile}}"),
              about="Empty without an sslProfile."),
        graph("Lines of the audit log", "cps",
              (f"rate(sluice_audit_lines_total{{ROUTER}}{RATE})", "written"),
              (f"rate(sluice_audit_dropped_total{{ROUTER}}{RATE})", "lost")),
        graph("Requests to the HTTP listeners", "cps",
              (f"sum by (page, code) (rate(sluice_http_requests_total{{ROUTER}}{RATE}))", "{{page}} {{code}}")),
        graph("Cost of a page of metrics", "s", ("sluice_scrape_seconds{ROUTER}", "processor time")),
    )),
)  # fmt: skip

NETWORK: Final = (
    Row("Are all routers up?", (
        stat("Routers read", "short", 'sum(up{job="$job"})'),
        stat("Routers not read", "short", 'count(up{job="$job"} == 0) or vector(0)', (1, 2)),
        stat("Routers not ready", "short", 'count(sluice_ready{job="$job"} == 0) or vector(0)', (1, 2)),
        stat("Alerts that fire", "short", 'count(ALERTS{alertname=~"Sluice.*", alertstate="firing"}) or vector(0)',
             (1, 5), "Needs the rules of conf/prometheus."),
        stat("First certificate expires in", "s",
             'min(sluice_tls_certificate_expiry_timestamp_seconds{job="$job"}) - time()', (7 * 86400, 86400),
             "Empty without an sslProfile."),
        Panel("Versions", (Query('count by (version) (sluice_build_info{job="$job"})', "{{version}}"),), kind="name"),
        Panel("Routers", (Query('sluice_ready{job="$job"} * on (job, instance) group_left (id, mode) '
                                'sluice_router_info{job="$job", id=~"$router"}'),), kind="table",
              about="Value: 1 if the router is ready."),
    )),
    Row("Who is connected?", (
        graph("Connections", "short", (each('sluice_listener_connections{NETWORK}'), "{{id}}")),
        graph("New connections", "cps", (each(f"rate(sluice_connections_accepted_total{{NETWORK}}{RATE})"), "{{id}}")),
        graph("Failed logins", "cps", (each(f"rate(sluice_logins_failed_by_host_total{{NETWORK}}{RATE})"), "{{id}}")),
        graph("Refused by policy", "cps", (each(f"rate(sluice_policy_denied_total{{NETWORK}}{RATE})"), "{{id}}")),
    )),
    Row("What moves, and how fast?", (
        graph("From clients", "cps",
              (each(f'rate(sluice_deliveries_total{{NETWORK, direction="ingress"}}{RATE})'), "{{id}}")),
        graph("To clients", "cps",
              (each(f'rate(sluice_deliveries_total{{NETWORK, direction="egress"}}{RATE})'), "{{id}}")),
        graph("To other routers", "cps",
              (each(f'rate(sluice_deliveries_total{{NETWORK, direction="transit"}}{RATE})'), "{{id}}")),
        graph("Time to settlement, 99th percentile", "s",
              ("histogram_quantile(0.99, sum by (le, id) (rate(sluice_delivery_seconds_bucket{NETWORK}"
               f"{RATE}) * {NAMES}))", "{{id}}"),
              about="The consumer's work is included."),
        graph("Outcomes in the network", "cps",
              (f"sum by (outcome) (rate(sluice_deliveries_ended_total{{NETWORK}}{RATE}) * {NAMES})", "{{outcome}}")),
        graph("Share not accepted", "percentunit",
              (f"sum by (id) (rate(sluice_deliveries_ended_total{{NETWORK, "
               f'outcome=~"rejected|released|modified"}}{RATE}) * {NAMES}) / '
               + each(f"rate(sluice_deliveries_ended_total{{NETWORK}}{RATE})"), "{{id}}")),
        graph("Settled messages discarded", "cps",
              (each(f'rate(sluice_presettled_dropped_total{{NETWORK, reason!="no_destination"}}{RATE})'), "{{id}}")),
        graph("Busiest addresses", "cps",
              (f"topk(10, sum by (address) (rate(sluice_address_deliveries_total{{NETWORK, {CLIENTS}}}{RATE}) "
               f"* {NAMES}))", "{{address}}")),
    )),
    Row("What stalls?", (
        graph("Links that wait for credit", "short", (each("sluice_links_blocked{NETWORK}"), "{{id}}"),
              about="For more than ten seconds. `sluice explain` names the reason and the peer."),
        graph("Deliveries that wait for more than ten seconds", "short",
              (each("sluice_links_stuck_deliveries{NETWORK}"), "{{id}}")),
        graph("Waiting to be sent", "short", (each("sluice_links_undelivered_deliveries{NETWORK}"), "{{id}}")),
        stat("Addresses with senders and no receiver", "short",
             f'count((sum by (address) (sluice_address_producers{{NETWORK, address!="other", {CLIENTS}}}) > 0) unless '
             "(sum by (address) (sluice_address_consumers{NETWORK}) > 0)) or vector(0)",
             about="Anywhere in the network, among the addresses with series of their own."),
    )),
    Row("Do routers reach each other?", (
        graph("Reachable routers", "short", (each("sluice_network_routers_reachable{NETWORK}"), "{{id}}"),
              about="Interior routers: as many as there are others."),
        graph("Paths found, changed or lost", "cps",
              (each(f"rate(sluice_network_path_changes_total{{NETWORK}}{RATE})"), "{{id}}")),
        graph("Active uplinks of edge routers", "short",
              (each('sluice_edge_uplinks{NETWORK, state="active"}'), "{{id}}"), about="1 for each edge router."),
        graph("Addresses with consumers at edge routers", "short",
              ("sum by (edge) (sluice_edge_router_addresses{NETWORK})", "{{edge}}")),
        graph("Missed heartbeats of edge routers", "cps",
              (f"sum by (edge) (rate(sluice_edge_router_heartbeats_missed_total{{NETWORK}}{RATE}))", "{{edge}}")),
        graph("Look-ups of edge routers without an answer", "cps",
              (each(f"rate(sluice_edge_lookups_unanswered_total{{NETWORK}}{RATE})"), "{{id}}")),
    )),
    Row("Are workers and memory well?", (
        graph("Busiest worker", "percentunit",
              (f"max by (id) (rate(sluice_worker_cpu_seconds_total{{NETWORK}}{RATE}) * {NAMES})", "{{id}}"),
              about="100 % is one core. A worker cannot use more."),
        graph("Messages held by the fullest worker", "percentunit",
              ("max by (id) (sluice_worker_buffered_bytes{NETWORK} / sluice_worker_buffered_limit_bytes{NETWORK} * "
               f"{NAMES})", "{{id}}"), about="As a share of its limit."),
        graph("Resident memory of the workers", "bytes",
              (each("sluice_worker_resident_memory_bytes{NETWORK}"), "{{id}}")),
        graph("Workers replaced", "short",
              (each(f"increase(sluice_worker_restarts_total{{NETWORK}}{RATE})"), "{{id}}"), about="Normal is 0."),
        graph("Lost lines of audit logs", "cps",
              (each(f"rate(sluice_audit_dropped_total{{NETWORK}}{RATE})"), "{{id}}"), about="Normal is 0."),
    )),
)  # fmt: skip
