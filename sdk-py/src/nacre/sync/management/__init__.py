"""Management of a cluster, with one module for each kind of object."""
