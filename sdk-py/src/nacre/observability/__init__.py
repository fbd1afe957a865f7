"""Spans and metrics of operations, and reports of slow and orphaned ones.

A tracer gets a span for each operation, with a child for each request that is sent for it; a meter
gets the duration of each operation::

    options = ClusterOptions(authenticator, tracer=MyTracer(), meter=MyMeter())

The interfaces are those of the official SDK, and so are the names of spans, attributes and tags.
Without a tracer and a meter no operation pays for them. `tracing.ThresholdLoggingTracer` and
`metrics.LoggingMeter` write JSON lines to the logger ``nacre``.
"""
