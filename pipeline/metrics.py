"""Status of a lander: text lines for operators, and metrics for Prometheus."""

import shutil
import time
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluice.pipeline.lag import ReaderLag
from sluice.pipeline.lander import AddressLander, LandedCounts, Lander
from sluice.pipeline.segments import now
from sluice.pipeline.units import octets_text

COUNTERS: tuple[tuple[str, str, Callable[[LandedCounts], int]], ...] = (
    ("deliveries", "Deliveries that were landed and accepted.", lambda counts: counts.deliveries),
    ("octets", "Octets of their messages.", lambda counts: counts.octets),
    ("segments", "Segments that were published.", lambda counts: counts.segments),
    ("merged", "Segments that were merged into larger files.", lambda counts: counts.merged),
    ("released", "Deliveries that were released, because writing failed.", lambda counts: counts.released),
    ("lost", "Deliveries whose link was lost before they were settled; they come again.", lambda counts: counts.lost),
)


#: Gauges of each group of readers, for the segments of this lander.
GROUP_GAUGES: dict[str, tuple[str, Callable[[ReaderLag], float]]] = {
    "lag_rows": ("Messages that the group has not read.", lambda lag: lag.rows),
    "lag_octets": ("Octets of segments that the group has not read.", lambda lag: lag.octets),
    "lag_seconds": ("Age of the oldest segment that the group has not read.", lambda lag: lag.seconds),
}


def lag(link: AddressLander) -> float:
    """Return the age in seconds of the oldest segment that is not read."""
    return max(now() - link.counts.oldest, 0) / 1000 if link.counts.oldest is not None else 0.0


def free_octets(path: str) -> int | None:
    """Return the octets that are free on the disk of a landing folder. None: the folder is no local one."""
    try:
        return None if "://" in path else shutil.disk_usage(path).free
    except OSError:  # the folder was removed
        return None


class LanderCollector(Collector):
    """Collector for prometheus_client. It is called from another thread and only reads numbers."""

    def __init__(self, lander: Lander) -> None:
        self.lander = lander

    def collect(self) -> Iterator[Metric]:
        links = self.lander.links
        for name, text, get in COUNTERS:
            counter = CounterMetricFamily(f"sluice_lander_{name}", text, labels=["address"])
            for link in links:
                counter.add_metric([link.address], get(link.counts))
            yield counter
        rejected = CounterMetricFamily(
            "sluice_lander_rejected", "Deliveries that were rejected, because they were too long.", labels=["address"]
        )
        gauges: dict[str, tuple[str, Callable[[AddressLander], float]]] = {
            "staged_octets": ("Octets of segments that are not read.", lambda link: link.counts.staged),
            "lag_seconds": ("Age of the oldest segment that is not read.", lag),
            "in_hand_octets": ("Octets of messages in memory.", lambda link: link.octets_in_memory),
            "credit": ("Credit that the router has.", lambda link: link.state.credit if link.state else 0),
            "attached": ("1: the link is attached.", lambda link: int(bool(link.state and link.state.attached))),
            "write_failing": ("1: the last segment could not be written.", lambda link: int(link.failures > 0)),
            "merge_failing": ("1: the last merge of segments failed.", lambda link: int(link.merge_failing)),
        }
        for link in links:
            rejected.add_metric([link.address], link.rejected)
        yield rejected
        for name, (text, read) in gauges.items():
            gauge = GaugeMetricFamily(f"sluice_lander_{name}", text, labels=["address"])
            for link in links:
                gauge.add_metric([link.address], read(link))
            yield gauge
        for name, (text, read_lag) in GROUP_GAUGES.items():
            gauge = GaugeMetricFamily(f"sluice_lander_group_{name}", text, labels=["group", "address"])
            for link in links:
                for group, behind in link.writer.lags.items():
                    gauge.add_metric([group, link.address], read_lag(behind))
            yield gauge
        yield GaugeMetricFamily("sluice_lander_held", "1: too much is staged, no credit.", value=int(self.lander.held))
        limit = self.lander.options.stage_high
        yield GaugeMetricFamily("sluice_lander_stage_limit_octets", "Value of --stage-high; 0: no limit.", value=limit)
        free = free_octets(self.lander.options.path)
        if free is not None:
            yield GaugeMetricFamily("sluice_lander_free_octets", "Free octets on the disk of the folder.", value=free)
        about = "Times that credit was withheld, because too much was staged."
        yield CounterMetricFamily("sluice_lander_holds", about, value=self.lander.holds)


class StatusLine:
    """Status line with the progress since the previous line."""

    def __init__(self, lander: Lander) -> None:
        self.lander = lander
        self.deliveries = 0
        self.at = time.monotonic()

    def text(self) -> str:
        links = self.lander.links
        deliveries = sum(link.counts.deliveries for link in links)
        at = time.monotonic()
        rate = (deliveries - self.deliveries) / max(at - self.at, 0.001)
        self.deliveries, self.at = deliveries, at
        waiting = [link.address for link in links if link.state is None or not link.state.attached]
        parts = [
            f"{deliveries:,} landed",
            f"{rate:,.0f}/s",
            f"staged {octets_text(self.lander.staged)}",
            f"lag {max(map(lag, links)):.1f} s",
        ]
        released = sum(link.counts.released for link in links)
        if released:
            parts.append(f"released {released:,}")
        if self.lander.held:
            parts.append("no credit for the router: too much is staged")
        if waiting:
            parts.append(f"not attached: {', '.join(waiting)}")
        return ", ".join(parts)
