"""Metrics as Prometheus reads them, by prometheus_client. Import this only where metrics are on:
it brings http.server and ssl with it (2.5 MiB, 30 ms of CPU)."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from ladon_slurm.metrics.moment import Moment
from ladon_slurm.metrics.read import Metric
from ladon_slurm.metrics.table import METRICS, SLOW

QUICK = [m for m in METRICS if m not in SLOW]


class Last(Collector):
    """A collector over one moment."""

    def __init__(self, moment: Moment, metrics: Iterable[Metric]) -> None:
        self._moment, self._metrics = moment, metrics

    def collect(self) -> Iterable[Family]:
        for metric in self._metrics:
            if (family := _family(metric, self._moment)).samples:
                yield family


class Pages:
    """One page after the other. What is read once a minute is most of it, and is written once a minute."""

    def __init__(self) -> None:
        self._slow = b""
        self._of: list[object] = [self]  # whatever _slow was made of

    def __call__(self, moment: Moment) -> bytes:
        """All that is known at this moment, in the text format 0.0.4."""
        of = _made_of(moment)
        if len(of) != len(self._of) or any(new is not old for new, old in zip(of, self._of, strict=True)):
            self._slow, self._of = _text(moment, SLOW), of
        return _text(moment, QUICK) + self._slow


def page(moment: Moment) -> bytes:
    return Pages()(moment)


def _made_of(moment: Moment) -> list[object]:
    """The very objects: to compare them by value costs as much as to write them."""
    if moment.snapshot is None:
        return []
    rows = moment.snapshot.devices
    return [moment.snapshot.facts, *(part for row in rows for part in (row.device, row.facts))]


def _text(moment: Moment, metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Last(moment, metrics))
    return generate_latest(registry)


def _family(metric: Metric, moment: Moment) -> Family:
    samples = metric.samples(moment)
    if metric.kind == "summary":
        summary = SummaryMetricFamily(metric.name, metric.help, labels=metric.labels[:-1])
        values = dict(samples)
        for labels in dict.fromkeys(key[:-1] for key in values):
            summary.add_metric(labels, int(values[*labels, "count"]), values[*labels, "sum"])
        return summary
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
