"""Managing a cluster: a module for each kind of thing."""
