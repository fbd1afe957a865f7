//! Map/reduce views as a plugin.
