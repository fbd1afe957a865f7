//! Users, roles and SASL.
