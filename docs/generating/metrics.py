"""The table of metrics, as a server with a data directory tells them."""

from prometheus_client.metrics_core import Metric

from docs.generating.running import offer
from docs.generating.tables import code, sentence, table

MOST_VALUES = 6
"""Values of a label that are all named; of more, only the label is."""
ENDINGS = {"counter": "_total", "info": "_info"}
"""What a name has at its end as it is scraped."""
OPEN_LABELS = ("topic", "reason", "policy", "version", "node_id")
"""Labels whose values are of this server and this day."""


def metrics_table() -> str:
    """Every metric with its type, its labels, and its help."""
    return table(("name", "type", "labels", "meaning"), map(_row, offer().metrics))


def scraped_name(metric: Metric) -> str:
    """The name that a scraper sees, without what histograms add."""
    return metric.name + ENDINGS.get(metric.type, "")


def _row(metric: Metric) -> list[str]:
    kind = "gauge" if metric.type == "info" else metric.type
    return [code(scraped_name(metric)), kind, _labels(metric), sentence(metric.documentation)]


def _labels(metric: Metric) -> str:
    names = [name for sample in metric.samples for name in sample.labels if name != "le"]
    names += getattr(metric, "_labelnames", ())  # those without samples yet
    return "; ".join(_label(metric, name) for name in dict.fromkeys(names))


def _label(metric: Metric, name: str) -> str:
    values = list(dict.fromkeys(sample.labels[name] for sample in metric.samples if name in sample.labels))
    is_told = name not in OPEN_LABELS and 0 < len(values) <= MOST_VALUES
    return f"{name}: {', '.join(values)}" if is_told else name
