//! The documents of CH2, generated from a seed, and its 22 queries.
//!
//! CH2 combines the shop of TPC-C (warehouses, districts, customers, orders) with the questions of TPC-H (suppliers, nations,
//! regions), over nested documents: an order contains its lines. The data follows the rules of the paper; names and texts are
//! random letters.
//!
//! ```text
//! orders 1.2.7 ─ {"o_id": 7, "o_d_id": 2, "o_w_id": 1, "o_c_id": …, "o_entry_d": "2016-…", "o_orderline": [{"ol_number": 1, …}, …]}
//! ```
//!
//! *Invariant:* the same options give the same documents; each table has its own seed.

mod calendar;
mod random;
mod tables;

pub use tables::{Options, TABLES, changes, generate};

/// The queries, in SQL++ for analytics and in SQL for a relational engine that unnests lists of structs: number, both texts.
pub const QUERIES: [(usize, &str, &str); 22] = {
    macro_rules! query {
        ($number:literal, $name:literal) => {
            (
                $number,
                include_str!(concat!("../queries/", $name, ".sqlpp")),
                include_str!(concat!("../queries/", $name, ".sql")),
            )
        };
    }
    [
        query!(1, "01"),
        query!(2, "02"),
        query!(3, "03"),
        query!(4, "04"),
        query!(5, "05"),
        query!(6, "06"),
        query!(7, "07"),
        query!(8, "08"),
        query!(9, "09"),
        query!(10, "10"),
        query!(11, "11"),
        query!(12, "12"),
        query!(13, "13"),
        query!(14, "14"),
        query!(15, "15"),
        query!(16, "16"),
        query!(17, "17"),
        query!(18, "18"),
        query!(19, "19"),
        query!(20, "20"),
        query!(21, "21"),
        query!(22, "22"),
    ]
};
