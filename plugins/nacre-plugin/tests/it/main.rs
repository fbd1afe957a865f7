//! The guest SDK against plain models.

mod btree;
