"""Durations for OpenTelemetry, if the application has its package; see `otel_tracing`."""

from collections.abc import Mapping
from typing import Any

from .metrics import Meter, ValueRecorder
from .otel_tracing import LIBRARY, VERSION, opentelemetry


class OtelWrapperValueRecorder(ValueRecorder):
    """Wraps an OpenTelemetry histogram with tags."""

    def __init__(self, histogram: Any, tags: Mapping[str, Any], unit: str | None = None) -> None:
        self._histogram, self._tags, self._unit = histogram, tags, unit

    def record_value(self, value: int) -> None:
        """Records a value. If the unit is seconds, the argument is in microseconds."""
        self._histogram.record(value / 1e6 if self._unit == "s" else value, self._tags)


class OtelWrapperMeter(Meter):
    """Wraps an OpenTelemetry meter."""

    def __init__(self, otel_meter: Any) -> None:
        self._meter = otel_meter
        self._histograms: dict[str, Any] = {}

    def value_recorder(self, name: str, tags: Mapping[str, Any]) -> ValueRecorder:
        attributes = {key: value for key, value in tags.items() if key != "__unit"}
        unit = tags.get("__unit")
        if name not in self._histograms:
            self._histograms[name] = self._meter.create_histogram(name, unit=unit or "")
        return OtelWrapperValueRecorder(self._histograms[name], attributes, unit)


def get_otel_meter(provider: Any = None) -> Meter:
    """Returns a meter for ``ClusterOptions``, from the given or the registered provider.

    Raises:
        ImportError: if the package ``opentelemetry-api`` is not installed.
    """
    found = provider or opentelemetry("metrics").get_meter_provider()
    return OtelWrapperMeter(found.get_meter(LIBRARY, VERSION))
