//! Searches: the documents of the first term are the hits of a search that its condition asks for.

use super::{conjuncts, flexible, literal, nearest};
use crate::plan::{Access, Page, Scan, ScanSource, SearchScan};
use crate::plan_context::PlanContext;
use nacre_sql::ast::{Block, Chain, Expr, OrderTerm, Source};
use nacre_sql::{Name, Result, Value, search_target};

/// A scan of hits, and what is left to do of the block.
pub(super) struct Searched {
    pub scan: Scan,
    /// The condition without the search.
    pub condition: Option<Expr>,
    /// True if rows come in the wanted order.
    pub ordered: bool,
}

/// Plans the first term of a block as the hits of a search, if the condition requires one, or the hints allow one, and an index answers it.
pub(super) fn choose(
    block: &Block,
    order: &[OrderTerm],
    page: &Page,
    context: &dyn PlanContext,
) -> Result<Option<Searched>> {
    let Some(from) = &block.from else { return Ok(None) };
    let Source::Keyspace(path) = &from.first.source else { return Ok(None) };
    if from.has_right_join() || from.first.hints.keys.is_some() || path.is_system() {
        return Ok(None);
    }
    let operands = conjuncts(block.condition.as_ref());
    let searches =
        operands.iter().enumerate().filter(|(_, operand)| is_search(operand, &from.first.alias));
    for (at, call) in searches {
        let Expr::Call(_, args) = call else { continue };
        let Some((_, field)) = args.first().and_then(search_target) else { continue };
        let options = match args.get(2) {
            None => Value::Missing,
            Some(options) => match literal(options, context) {
                Some(options) => options,
                // The request chooses the index when it runs.
                None => continue,
            },
        };
        let keyspace = context.keyspace(path)?;
        let options = with_hints(options, &from.first.hints.search_indexes);
        let Some(index) = context.search_index(&keyspace, field, options)? else { continue };
        let rest: Vec<Expr> = operands
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, e)| e.clone())
            .collect();
        let condition = match rest.len() {
            0 => None,
            1 => rest.into_iter().next(),
            _ => Some(Expr::Chain(Chain::And, rest)),
        };
        let is_alone = from.joins.is_empty() && block.group.is_none();
        let by_score = is_alone && is_by_score(order, &from.first.alias);
        // Only where each hit is a row, and no other order is wanted, the first hits are enough.
        let is_paged =
            is_alone && condition.is_none() && !block.distinct && (order.is_empty() || by_score);
        let page = if is_paged { page.clone() } else { Page::default() };
        let call = call.clone();
        let access = Access::Search(SearchScan {
            index,
            call,
            page,
            by_score,
            is_flexible: false,
            nearest: None,
        });
        let source = ScanSource::Keyspace { keyspace, access, covering: false };
        let scan = Scan::of(from.first.alias.clone(), source);
        return Ok(Some(Searched { scan, condition, ordered: by_score }));
    }
    if let Some(scan) = nearest::choose(block, order, page, &operands, context)? {
        return Ok(Some(Searched { scan, condition: block.condition.clone(), ordered: false }));
    }
    let scan = flexible::choose(from, path, &operands, context)?;
    // The hits may include documents for which the condition is not true.
    Ok(scan.map(|scan| Searched { scan, condition: block.condition.clone(), ordered: false }))
}

/// Adds the indexes that the statement prefers to the options, as the member `use_index`. An index in the options has precedence.
fn with_hints(options: Value, preferred: &[Name]) -> Value {
    if preferred.is_empty() {
        return options;
    }
    let names: Vec<Value> = preferred.iter().cloned().map(Value::from).collect();
    let given = options.as_object().into_iter().flatten();
    let given = given.map(|(name, value)| (name.clone(), value.clone()));
    Value::object(given.chain([(Name::from("use_index"), Value::from(names))]))
}

fn is_search(expr: &Expr, alias: &Name) -> bool {
    let Expr::Call(function, args) = expr else { return false };
    let target = args.first().and_then(search_target);
    function.name == "SEARCH"
        && target.is_some_and(|(of, _)| of == alias)
        // An argument that depends on a document has no value before the document is read.
        && args[1..].iter().all(|arg| !super::mentions(arg, std::slice::from_ref(alias)))
}

/// Returns true if the order is that of the service: the best hits first.
fn is_by_score(order: &[OrderTerm], alias: &Name) -> bool {
    let [term] = order else { return false };
    let Expr::Call(function, args) = &term.expr else { return false };
    function.name == "SEARCH_SCORE"
        && term.descending
        && term.nulls_last.is_none()
        && args[..] == [Expr::Ident(alias.clone())]
}
