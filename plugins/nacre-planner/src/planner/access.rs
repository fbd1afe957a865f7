//! How the documents of a term are found: by key, by an index, or by reading all of them.
//!
//! Each index that can serve is a [`Candidate`]: what is asked of its parts, whether it holds all that is read, and whether
//! it has the order. The best one is taken, as [`Candidate::rank`] has it. What an index can do is found out elsewhere: what is
//! asked of it in [`super::sarg`], what it holds in [`super::cover`], the order in [`super::order`].

use super::cost::{self, Basis};
use super::cover::{Covered, cover};
use super::{conjuncts, mentions, order, sarg};
use crate::plan::{Access, IndexScan, Page, Sarg};
use crate::plan_context::PlanContext;
use nacre_datastore::Keyspace;
use nacre_sql::ast::{Binary, Block, Body, Chain, Expr, FromTerm, OrderTerm, Select};
use nacre_sql::index::{Definition, SELF};
use nacre_sql::{Name, Result, any_in, each_in_select, functions};
use std::cmp::Reverse;
use std::rc::Rc;

/// How many operands of OR are looked up one by one.
const UNION_MAX: usize = 32;

/// What is wanted of a term beside its documents.
#[derive(Default)]
pub(super) struct TermNeeds<'a> {
    /// All that is read of it, if entries may stand for documents.
    pub read: Option<(&'a Block, &'a [OrderTerm])>,
    /// The order that is of use.
    pub order: &'a [OrderTerm],
    /// Whether only the first rows in that order are wanted.
    pub limited: bool,
    /// How many, if that is known.
    pub limit: Option<f64>,
    /// Whether each document is a row, so that no more documents are read than rows are wanted.
    pub unfiltered: bool,
}

impl<'a> TermNeeds<'a> {
    /// What a block wants of its first term.
    pub fn of_block(block: &'a Block, order: &'a [OrderTerm], page: &Page) -> TermNeeds<'a> {
        let Some(from) = &block.from else { return TermNeeds::default() };
        // What is missing on the left of a right join has no entry either.
        if from.has_right_join() {
            return TermNeeds::default();
        }
        TermNeeds {
            read: Some((block, order)),
            order: if block.group.is_none() { order } else { &[] },
            limited: page.limit.is_some(),
            limit: page.limit.as_ref().and_then(cost::first_rows),
            unfiltered: block.condition.is_none() && from.joins.is_empty(),
        }
    }
}

/// How documents are found, and what comes of that.
pub(super) struct AccessChoice {
    pub access: Access,
    /// Whether rows come in the wanted order.
    pub ordered: bool,
    /// The block over entries, when they hold all that it reads.
    pub covered: Option<Covered>,
}

impl From<Access> for AccessChoice {
    fn from(access: Access) -> AccessChoice {
        AccessChoice { access, ordered: false, covered: None }
    }
}

/// A term whose documents are looked for.
struct Search<'a> {
    alias: &'a Name,
    /// Conditions that hold for all that are wanted.
    known: &'a [Expr],
    /// The variables that have no value yet.
    own: &'a [Name],
    wanted: &'a TermNeeds<'a>,
    context: &'a dyn PlanContext,
    /// The statistics of the keyspace, if there are any.
    basis: Option<Basis<'a>>,
}

/// Decides how documents are found; `own` are the variables that have no value yet.
pub(super) fn choose(
    keyspace: &Keyspace,
    term: &FromTerm,
    known: &[Expr],
    own: &[Name],
    wanted: &TermNeeds<'_>,
    context: &dyn PlanContext,
) -> Result<AccessChoice> {
    if let Some(keys) = &term.hints.keys {
        return Ok(Access::Keys(keys.clone()).into());
    }
    if let Some(keys) =
        known.iter().find_map(|condition| key_condition(condition, &term.alias, own))
    {
        return Ok(Access::Keys(keys).into());
    }
    let all = context.indexes(keyspace)?;
    let basis = || Basis::of(keyspace, &term.alias, context);
    let basis = if all.is_empty() { None } else { basis() };
    let search = Search { alias: &term.alias, known, own, wanted, context, basis };
    let named = |(_, definition): &&Loaded| term.hints.indexes.contains(&definition.name);
    let hinted: Vec<Loaded> = all.iter().filter(named).cloned().collect();
    // What a hint names and is of no use is no worse than no hint.
    let found = search
        .by_names(&hinted)
        .or_else(|| search.by_index(&hinted))
        .or_else(|| search.by_index(&all));
    Ok(found.unwrap_or_else(|| Access::Sequential.into()))
}

type Loaded = (u64, Rc<Definition>);

/// How much less is read than everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Narrowing {
    Nothing,
    Range,
    Points,
}

/// An index that can serve.
pub(super) struct Candidate {
    pub scan: IndexScan,
    pub ordered: bool,
    pub covered: Option<Covered>,
}

impl Candidate {
    /// What makes one better than another, the most important first.
    ///
    /// Whatever narrows is better than an index that is read from end to end, even if that covers. Of those that
    /// narrow, one that covers saves the fetch of each document, which costs more than reading entries that do not
    /// match. The order counts for less than equal values: it saves sorting of what is read, not reading.
    fn rank(&self) -> impl Ord + use<> {
        let narrowing = self.narrowing();
        (
            narrowing > Narrowing::Nothing,
            self.covered.is_some(),
            narrowing == Narrowing::Points,
            self.ordered,
            self.score(),
            Reverse(self.scan.definition.keys.len()),
        )
    }

    fn narrowing(&self) -> Narrowing {
        let of_sarg = |sarg: &Sarg| match sarg {
            Sarg::Equal(_) | Sarg::In(_) | Sarg::IsNull | Sarg::IsMissing => Narrowing::Points,
            Sarg::Above(..) | Sarg::Below(..) | Sarg::Like(..) => Narrowing::Range,
            Sarg::IsKnown | Sarg::NotMissing => Narrowing::Nothing,
        };
        let first = self.scan.parts.first().into_iter().flatten().map(of_sarg).max();
        let partial = self.scan.definition.condition.as_ref().map(|_| Narrowing::Range);
        first.max(partial).unwrap_or(Narrowing::Nothing)
    }

    /// Equal values narrow more than ranges do, and ranges more than mere presence.
    fn score(&self) -> usize {
        let of_part = |part: &Vec<Sarg>| {
            let of_sarg = |sarg: &Sarg| match sarg {
                Sarg::Equal(_) | Sarg::IsNull | Sarg::IsMissing => 8,
                Sarg::In(_) => 6,
                Sarg::Above(..) | Sarg::Below(..) | Sarg::Like(..) => 3,
                Sarg::IsKnown | Sarg::NotMissing => 1,
            };
            part.iter().map(of_sarg).max().unwrap_or(0)
        };
        let partial = self.scan.definition.condition.iter().map(|_| 4);
        self.scan.parts.iter().map(of_part).chain(partial).sum()
    }

    /// Whether one equal value is asked for, and each document has one entry.
    fn is_equal(&self) -> bool {
        !self.scan.repeats()
            && self.scan.parts.len() == 1
            && matches!(self.scan.parts[0][..], [Sarg::Equal(_), ..])
    }

    /// Whether the ids of this one, which is not as good as `best`, leave fewer of its documents.
    fn narrows(&self, best: &Candidate) -> bool {
        let asked = &self.scan.definition.keys[0].expr;
        let contains_key = |expr: &Expr| any_in(expr, &|inner| inner == asked);
        self.is_equal()
            && best.scan.definition.keys[0].expr != *asked
            && !best.scan.definition.condition.as_ref().is_some_and(contains_key)
    }
}

impl Search<'_> {
    /// The documents that are in all of several indexes that a hint names, where each narrows and none suffices alone.
    fn by_names(&self, hinted: &[Loaded]) -> Option<AccessChoice> {
        if hinted.len() < 2 {
            return None;
        }
        let all = self.candidates(hinted, self.known, self.wanted);
        let suffices = |candidate: &Candidate| {
            candidate.covered.is_some() || candidate.ordered && self.wanted.limited
        };
        if all.iter().any(suffices) {
            return None;
        }
        let narrowing = all.into_iter().filter(|found| found.narrowing() > Narrowing::Nothing);
        let mut scans: Vec<IndexScan> = Vec::new();
        for Candidate { scan, .. } in narrowing {
            // What another has asked already would leave no fewer.
            let key = &scan.definition.keys[0].expr;
            if scans.iter().all(|other| other.definition.keys[0].expr != *key) {
                scans.push(IndexScan { reverse: false, ..scan });
            }
        }
        (scans.len() > 1).then(|| Access::Intersect(scans).into())
    }

    fn by_index(&self, indexes: &[Loaded]) -> Option<AccessChoice> {
        let candidates = self.candidates(indexes, self.known, self.wanted);
        let narrows = |candidate: &Candidate| candidate.narrowing() > Narrowing::Nothing;
        // An index for each operand of OR reads less than one whole index, unless it is read as a whole too.
        let union = || {
            let scans = self.union_of(indexes, !candidates.is_empty());
            scans.map(|scans| Access::Union(scans).into())
        };
        if !candidates.first().is_some_and(narrows)
            && let Some(union) = union()
        {
            return Some(union);
        }
        let primary = || indexes.iter().find(|(_, definition)| definition.is_primary());
        if candidates.is_empty() {
            return primary().map(|(_, found)| Access::Primary(found.name.clone()).into());
        }
        Some(match self.basis.as_ref().filter(|basis| basis.describes(&candidates)) {
            Some(basis) => self.cheapest_of(candidates, basis),
            None => self.best_of(candidates),
        })
    }

    /// The best index alone, or with another that is asked for an equal value of something else.
    fn best_of(&self, candidates: Vec<Candidate>) -> AccessChoice {
        let mut candidates = candidates.into_iter();
        let best = candidates.next().expect("the caller has found some");
        let suffices = best.covered.is_some() || best.ordered && self.wanted.limited;
        if !suffices
            && best.is_equal()
            && let Some(second) = candidates.find(|other| other.narrows(&best))
        {
            let both =
                [best, second].map(|candidate| IndexScan { reverse: false, ..candidate.scan });
            return Access::Intersect(both.into()).into();
        }
        let Candidate { scan, ordered, covered } = best;
        AccessChoice { access: Access::Index(scan), ordered, covered }
    }

    /// The index with the least cost, alone or with another that is asked for an equal value of something else.
    fn cheapest_of(&self, candidates: Vec<Candidate>, basis: &Basis<'_>) -> AccessChoice {
        let cost = |candidate: &Candidate| basis.cost(candidate, self.known, self.wanted);
        let order = |a: &(f64, Candidate), b: &(f64, Candidate)| a.0.total_cmp(&b.0);
        let mut all: Vec<(f64, Candidate)> =
            candidates.into_iter().map(|candidate| (cost(&candidate), candidate)).collect();
        // Of those that cost the same, the first is the one that the rules would take.
        all.sort_by(order);
        let mut all = all.into_iter();
        let (least, best) = all.next().expect("the caller has found some");
        let is_alone = best.covered.is_some() || best.ordered && self.wanted.limited;
        let partners =
            all.filter(|(_, other)| !is_alone && best.is_equal() && other.narrows(&best));
        let both = partners
            .map(|(_, other)| (basis.cost_of_both(&best, &other, self.known, self.wanted), other))
            .min_by(order);
        if let Some((_, second)) = both.filter(|(both, _)| *both < least) {
            let both =
                [best, second].map(|candidate| IndexScan { reverse: false, ..candidate.scan });
            return Access::Intersect(both.into()).into();
        }
        let Candidate { scan, ordered, covered } = best;
        AccessChoice { access: Access::Index(scan), ordered, covered }
    }

    /// All indexes that serve, the best first.
    fn candidates(
        &self,
        indexes: &[Loaded],
        known: &[Expr],
        wanted: &TermNeeds<'_>,
    ) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = indexes
            .iter()
            .filter(|(_, definition)| sarg::follows(definition, self.alias, known, self.context))
            .filter_map(|(id, definition)| self.candidate(*id, definition, known, wanted))
            .collect();
        candidates.sort_by_key(|candidate| Reverse(candidate.rank()));
        candidates
    }

    /// An index whose condition holds, if it has all documents that are wanted, and reading it is of use.
    fn candidate(
        &self,
        id: u64,
        definition: &Rc<Definition>,
        known: &[Expr],
        wanted: &TermNeeds<'_>,
    ) -> Option<Candidate> {
        let parts = sarg::sargs(definition, self.alias, known, self.own);
        let whole = parts.is_empty();
        if whole && !self.has_all(definition, known, wanted) {
            return None;
        }
        // Where the array is empty there is no entry, so that only what asks for an element finds all that it wants.
        if definition.keys.iter().skip(parts.len()).any(|key| key.array.is_some() && !key.joined) {
            return None;
        }
        let mut scan = IndexScan {
            id,
            definition: definition.clone(),
            parts,
            spread: sarg::spread(definition, self.alias, known, self.own),
            reverse: false,
            covers: Vec::new(),
            constants: Vec::new(),
        };
        let direction = order::direction(&scan, self.alias, wanted.order);
        scan.reverse = direction.unwrap_or(false);
        let covered = wanted.read.and_then(|(block, order)| {
            cover(&mut scan, self.alias, block, order, self.own, self.context)
        });
        let ordered = direction.is_some();
        let first_rows = ordered && wanted.limited && wanted.unfiltered;
        let is_of_use = !whole || covered.is_some() || first_rows || definition.condition.is_some();
        is_of_use.then_some(Candidate { scan, ordered, covered })
    }

    /// Whether all documents that are wanted have an entry.
    ///
    /// What cannot be put into an entry has none. That is taken for what the index is of, and not for anything else.
    fn has_all(&self, definition: &Definition, known: &[Expr], wanted: &TermNeeds<'_>) -> bool {
        if definition.is_primary() || !definition.is_complete() {
            return definition.is_primary();
        }
        let of = nacre_cost::renamed(&definition.keys[0].expr, SELF, self.alias);
        let asks = |expr: &Expr| any_in(expr, &|inner| *inner == of);
        let reads = |(block, order): (&Block, &[OrderTerm])| {
            let mut found = false;
            let mut whole = Select {
                with: Vec::new(),
                body: Body::Block(Box::new(block.clone())),
                order: order.to_vec(),
                limit: None,
                offset: None,
            };
            let done = each_in_select(&mut whole, &mut |expr| {
                found |= asks(expr);
                Ok(())
            });
            debug_assert!(done.is_ok(), "looking refuses nothing");
            found
        };
        known.iter().any(asks) || wanted.read.is_some_and(reads)
    }

    /// A scan for each operand of an OR, if all have one; one that `narrows` if that is asked for.
    fn union_of(&self, indexes: &[Loaded], narrows: bool) -> Option<Vec<IndexScan>> {
        self.known.iter().find_map(|condition| {
            let Expr::Chain(Chain::Or, operands) = condition else { return None };
            if operands.len() > UNION_MAX {
                return None;
            }
            let scans = operands.iter().map(|operand| {
                let mut known = self.known.to_vec();
                known.extend(conjuncts(Some(operand)));
                let found =
                    self.candidates(indexes, &known, &TermNeeds::default()).into_iter().next();
                let of_use = |found: &Candidate| !narrows || found.narrowing() > Narrowing::Nothing;
                found.filter(of_use).map(|candidate| candidate.scan)
            });
            scans.collect()
        })
    }
}

fn is_id(expr: &Expr, alias: &Name) -> bool {
    let Expr::Field(of, name, _) = expr else { return false };
    let Expr::Call(function, args) = &**of else { return false };
    **name == *"id" && function.name == "META" && args[..] == [Expr::Ident(alias.clone())]
}

/// The keys, if a condition says what they are.
fn key_condition(condition: &Expr, alias: &Name, own: &[Name]) -> Option<Expr> {
    let Expr::Binary(operator, a, b) = condition else { return None };
    let (keys, distinct) = match operator {
        Binary::Equal if is_id(a, alias) => (b, false),
        Binary::Equal if is_id(b, alias) => (a, false),
        Binary::In if is_id(a, alias) => (b, true),
        _ => return None,
    };
    if mentions(keys, own) {
        return None;
    }
    let keys = (**keys).clone();
    // A key that is given twice is one document.
    let unique = functions::find("ARRAY_DISTINCT").expect("it is in the table");
    // An array is no key, so it is put into one where a single key is meant.
    Some(if distinct { Expr::Call(unique, vec![keys]) } else { Expr::Array(vec![keys]) })
}
