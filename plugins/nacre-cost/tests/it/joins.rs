//! The chosen order of joins is the cheapest of all.

use nacre_cost::{Estimate, IndexCost, best_order, hash_join, lookup_join};
use proptest::prelude::*;

/// Terms with individual row counts in a chain: each pair of neighbours has a share of matching
/// pairs.
struct Chain {
    rows: Vec<f64>,
    share: Vec<f64>,
}

impl Chain {
    fn first(&self, term: usize) -> Option<Estimate> {
        Some(Estimate {
            cost: self.rows[term],
            cardinality: self.rows[term],
            ..Estimate::default()
        })
    }

    fn next(&self, before: &[usize], left: Estimate, term: usize) -> Option<Estimate> {
        let of = |other: usize| match term.abs_diff(other) {
            1 => self.share[term.min(other)],
            _ => 1.0,
        };
        let share: f64 = before.iter().map(|other| of(*other)).product();
        let right = self.first(term)?;
        Some(hash_join(left, right, left.cardinality * right.cardinality * share))
    }

    fn cost(&self, order: &[usize]) -> f64 {
        let mut rows = self.first(order[0]).unwrap();
        for at in 1..order.len() {
            rows = self.next(&order[..at], rows, order[at]).unwrap();
        }
        rows.cost
    }
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(count - 1);
    let all = shorter.iter().flat_map(|order| {
        (0..=order.len()).map(|at| {
            let mut longer = order.clone();
            longer.insert(at, count - 1);
            longer
        })
    });
    all.collect()
}

proptest! {
    #[test]
    fn no_order_is_cheaper_by_more_than_a_tenth(
        rows in prop::collection::vec(1.0_f64..10_000.0, 2..6),
        share in prop::collection::vec(0.0001_f64..0.1, 6),
    ) {
        let chain = Chain { rows, share };
        let count = chain.rows.len();
        let found = best_order(count, &mut |term| chain.first(term), &mut |before, left, term| {
            chain.next(before, left, term)
        });
        let written: Vec<usize> = (0..count).collect();
        let least = permutations(count).iter().map(|order| chain.cost(order)).fold(f64::MAX, f64::min);
        match &found {
            // Of two ways to join the same terms only the cheaper one is extended, and both return
            // the same number of rows.
            Some(order) => prop_assert!(chain.cost(order) <= least * (1.0 + 1e-9)),
            None => prop_assert!(chain.cost(&written) * 0.9 <= least * (1.0 + 1e-9)),
        }
    }
}

#[test]
fn a_term_without_an_estimate_keeps_the_written_order() {
    let chain = Chain { rows: vec![1000.0, 1.0], share: vec![0.1] };
    let mut first = |term| if term == 1 { None } else { chain.first(term) };
    assert_eq!(best_order(2, &mut first, &mut |a, b, c| chain.next(a, b, c)), None);
}

#[test]
fn many_terms_keep_the_written_order() {
    let chain = Chain { rows: vec![10.0; 20], share: vec![0.1; 20] };
    let mut next = |_: &[usize], _: Estimate, _: usize| panic!("2^20 sets are too many to look at");
    assert_eq!(best_order(20, &mut |term| chain.first(term), &mut next), None);
}

#[test]
fn few_rows_are_looked_up_and_many_are_hashed() {
    let index = |found: f64| IndexCost { entries: found, found, document_bytes: 100.0 }.fetched();
    let right = nacre_cost::sequential(100_000.0, 100.0);
    let left = |rows: f64| Estimate { cardinality: rows, ..Estimate::default() };
    let looked_up = |rows: f64| lookup_join(left(rows), index(1.0), rows).cost;
    let hashed = |rows: f64| hash_join(left(rows), right, rows).cost;
    assert!(looked_up(10.0) < hashed(10.0));
    assert!(looked_up(100_000.0) > hashed(100_000.0));
}
