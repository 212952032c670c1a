"""Figures of a server in Prometheus' format. No label holds a client or a text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from regard.serving.registry import ModelRegistry

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of requests and histograms of their stages; what workers do is read when it is asked for."""

    def __init__(self, service: "ModelRegistry"):
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "regard_requests", "Requests by route and status", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "regard_request_seconds", "Seconds of requests", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.stages = Histogram(
            "regard_stage_seconds",
            "Seconds by stage: prepare (split, tokenise), wait (for a place), search, finish (detokenise, align)",
            ["stage"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("regard_requests_in_flight", "Requests that are being answered", registry=self.registry)
        self.service = service
        self.registry.register(self)

    def collect(self) -> Iterator[Any]:
        """Read what the models do now."""
        rows = {
            "regard_queue_sentences": (GaugeMetricFamily, "Sentences that wait for a place", lambda m: m.line.waiting),
            "regard_places_in_use": (GaugeMetricFamily, "Sentences that are searched", lambda m: m.places),
            "regard_workers_ready": (GaugeMetricFamily, "Workers that serve", lambda m: m.ready_workers),
            "regard_captures": (GaugeMetricFamily, "CUDA graphs that were captured", lambda m: m.captures),
            "regard_sentences_per_second": (
                GaugeMetricFamily,
                "Sentences a second, of late",
                lambda m: m.counters.rate,
            ),
            "regard_sentences": (CounterMetricFamily, "Sentences that were searched", lambda m: m.counters.sentences),
            "regard_tokens": (CounterMetricFamily, "Tokens that were written", lambda m: m.counters.tokens),
            "regard_search_seconds": (
                CounterMetricFamily,
                "Seconds that workers searched",
                lambda m: m.counters.steps_seconds,
            ),
            "regard_call_seconds": (
                CounterMetricFamily,
                "Seconds that workers scored, aligned, labelled and looked",
                lambda m: m.counters.calls_seconds,
            ),
        }
        for name, (family, help, read) in rows.items():
            metric = family(name, help, labels=["model"])
            for model in self.service.models.values():
                metric.add_metric([model.name], read(model))
            yield metric

    def page(self) -> bytes:
        """Write all figures."""
        return generate_latest(self.registry)
