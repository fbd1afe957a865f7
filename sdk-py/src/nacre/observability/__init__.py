"""Spans and metrics of operations, and reports of slow and orphaned ones.

A tracer gets a span for each operation, with a child for each request that is sent for it; a meter
gets the duration of each operation::

    options = ClusterOptions(authenticator, tracer=MyTracer(), meter=MyMeter())

The interfaces and the names of spans, attributes and tags are those of the official SDK. Without a
tracer and a meter, operations have no overhead. `tracing.ThresholdLoggingTracer` and
`metrics.LoggingMeter` write JSON lines to the logger ``nacre``.
"""
