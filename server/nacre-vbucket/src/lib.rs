//! One vBucket as a state machine: hash table, CAS, locks, expiry, checkpoint.
