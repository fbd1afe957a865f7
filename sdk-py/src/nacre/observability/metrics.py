"""Durations of operations: the interfaces that a meter implements, and a meter that logs them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class ValueRecorder(ABC):
    """Records the values of one metric with one set of tags."""

    @abstractmethod
    def record_value(self, value: int) -> None:
        """Records a value. Durations are in microseconds."""


class Meter(ABC):
    """Creates recorders."""

    @abstractmethod
    def value_recorder(self, name: str, tags: Mapping[str, Any]) -> ValueRecorder:
        """Returns the recorder of a metric with tags. This is called for each value: cache
        recorders.
        """


BUCKETS_PER_OCTAVE = 8
"""Durations are counted in ranges, each about 9 % wider than the one before."""


class Histogram(ValueRecorder):
    """Counts values by range, in bounded memory. Percentiles have an error of at most 10 %."""

    def __init__(self) -> None:
        self.count = 0
        self.maximum = 0
        self._ranges: dict[int, int] = {}

    def record_value(self, value: int) -> None:
        value = max(value, 0)
        self.count += 1
        self.maximum = max(self.maximum, value)
        number = _range_of(value)
        self._ranges[number] = self._ranges.get(number, 0) + 1

    def percentile(self, percent: float) -> int:
        """Returns the given percentile, or 0 if there are no values."""
        wanted = self.count * percent / 100
        seen = 0
        for number, count in sorted(self._ranges.items()):
            seen += count
            if seen >= wanted:
                return min(_upper(number), self.maximum)
        return self.maximum


class LoggingMeter(Meter):
    """Reports counts and percentiles of durations, by service and operation, as a JSON line."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], Histogram] = {}

    def value_recorder(self, name: str, tags: Mapping[str, Any]) -> ValueRecorder:
        key = (str(tags.get("couchbase.service", name)), str(tags.get("db.operation.name", "")))
        return self._histograms.setdefault(key, Histogram())

    def report(self) -> dict[str, Any]:
        """Returns the values since the last report; empty if there are none."""
        found: dict[str, Any] = {}
        for (service, operation), histogram in self._histograms.items():
            found.setdefault(service, {})[operation] = {
                "total_count": histogram.count,
                "percentiles_us": {
                    **{f"{at}": histogram.percentile(at) for at in (50.0, 90.0, 99.0, 99.9)},
                    "100.0": histogram.maximum,
                },
            }
        self._histograms = {}
        return found


def _range_of(value: int) -> int:
    if value < BUCKETS_PER_OCTAVE:
        return value
    octave = value.bit_length() - BUCKETS_PER_OCTAVE.bit_length()
    return octave * BUCKETS_PER_OCTAVE + (value >> octave)


def _upper(number: int) -> int:
    if number < 2 * BUCKETS_PER_OCTAVE:
        return number
    octave = number // BUCKETS_PER_OCTAVE - 1
    return ((number - octave * BUCKETS_PER_OCTAVE + 1) << octave) - 1
