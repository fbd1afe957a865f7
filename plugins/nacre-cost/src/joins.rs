//! The order in which terms are joined.

use crate::Estimate;

/// More terms keep the order in which they were written: the number of sets doubles with each.
const TERMS_MAX: usize = 7;
/// Another order must save this share of the cost, as estimates are not exact.
const SAVED_MIN: f64 = 0.1;

/// Gives the estimate of joining a term to the rows of others, whose numbers are in the slice; `None` if they cannot be joined.
pub type Joining<'a> = dyn FnMut(&[usize], Estimate, usize) -> Option<Estimate> + 'a;

/// Returns the order of `count` terms with the least cost, or `None` if that is the written one or there are too many terms.
///
/// `first` gives the estimate of reading a term alone, `next` that of joining it to others. Orders are compared set by set: of two ways
/// to join the same terms, the cheaper one is continued.
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
