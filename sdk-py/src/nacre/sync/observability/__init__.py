"""See `nacre.observability`."""
