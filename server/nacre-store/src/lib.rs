//! A durable vBucket: the Store trait with sled, memory and fault-injecting back ends.
