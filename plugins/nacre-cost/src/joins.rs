//! The order in which terms are joined.

use crate::Estimate;

/// Maximum number of terms to reorder; each further term doubles the number of sets. More terms keep their written order.
const TERMS_MAX: usize = 7;
/// Share of the cost that another order must save, because estimates are not exact.
const SAVED_MIN: f64 = 0.1;

/// Returns the estimate of joining a term to the rows of the terms whose numbers are in the slice; `None` if they cannot be
/// joined.
pub type Joining<'a> = dyn FnMut(&[usize], Estimate, usize) -> Option<Estimate> + 'a;

/// Returns the cheapest order of `count` terms, or `None` if that is the written order or there are too many terms.
///
/// `first` returns the estimate of reading a term alone, `next` that of joining it to others. The search proceeds set by set: of
/// two ways to join the same terms, only the cheaper one is extended.
pub fn best_order(
    count: usize,
    first: &mut dyn FnMut(usize) -> Option<Estimate>,
    next: &mut Joining<'_>,
) -> Option<Vec<usize>> {
    if !(2..=TERMS_MAX).contains(&count) {
        return None;
    }
    let mut best: Vec<Option<(Estimate, Vec<usize>)>> = vec![None; 1 << count];
    for term in 0..count {
        best[1 << term] = Some((first(term)?, vec![term]));
    }
    for set in 1..best.len() {
        let Some((estimate, order)) = best[set].clone() else { continue };
        for term in (0..count).filter(|term| set & (1 << term) == 0) {
            let Some(found) = next(&order, estimate, term) else { continue };
            let place = &mut best[set | (1 << term)];
            if place.as_ref().is_none_or(|(known, _)| found.cost < known.cost) {
                *place = Some((found, [order.as_slice(), &[term]].concat()));
            }
        }
    }
    let (found, order) = best.pop().flatten()?;
    let written = (1..count).try_fold(first(0)?, |left, term| {
        let before: Vec<usize> = (0..term).collect();
        next(&before, left, term)
    });
    let is_better = written.is_none_or(|written| found.cost < written.cost * (1.0 - SAVED_MIN));
    is_better.then_some(order)
}
