//! Tests of states at their real sizes.

mod large;
