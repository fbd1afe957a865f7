//! The memcached binary protocol: bytes to frames and back, opcodes, statuses.
