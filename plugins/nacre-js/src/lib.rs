//! JavaScript for plugins: one QuickJS embedding with its limits and errors.
