//! Order: an index is read in the wanted one, if it has it; then nothing has to be sorted.

use crate::plan::{IndexScan, Sarg};
use nacre_cost::renamed;
use nacre_sql::Name;
use nacre_sql::ast::{IndexKey, OrderTerm};
use nacre_sql::index::SELF;

/// Whether the index is to be read from its end to have the order; none if it does not have it.
pub(super) fn direction(index: &IndexScan, alias: &Name, order: &[OrderTerm]) -> Option<bool> {
    if order.is_empty() || index.repeats() {
        return None;
    }
    let is_constant = |part: &Vec<Sarg>| {
        part.iter().any(|sarg| matches!(sarg, Sarg::Equal(_) | Sarg::IsNull | Sarg::IsMissing))
    };
    let skipped = index.parts.iter().take_while(|part| is_constant(part)).count();
    let keys = &index.definition.keys;
    let mut at = skipped;
    let mut reverse = None;
    for term in order {
        let matches = |key: &IndexKey| renamed(&key.expr, SELF, alias) == term.expr;
        // What is equal in all rows orders nothing.
        if keys[..skipped].iter().any(matches) {
            continue;
        }
        let key = keys.get(at).filter(|key| matches(key))?;
        let turned = key.descending != term.descending;
        let usual_nulls = term.nulls_last.is_none_or(|last| last == term.descending);
        if !usual_nulls || *reverse.get_or_insert(turned) != turned {
            return None;
        }
        at += 1;
    }
    Some(reverse.unwrap_or(false))
}
