//! Tests the guest SDK against plain models.

mod btree;
