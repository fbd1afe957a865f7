//! What the planner's choices cost, where UPDATE STATISTICS has described the keyspace. Without statistics nothing here has a value.

use super::access::{Candidate, TermNeeds};
use crate::plan::{Access, Costs, IndexScan, Sarg, Strategy};
use crate::plan_context::PlanContext;
use nacre_cost::{Estimate, IndexCost, Table, hash_join, lookup_join, loop_join};
use nacre_datastore::Keyspace;
use nacre_sql::ast::{self, Expr, JoinKind, Side};
use nacre_sql::index::SELF;
use nacre_sql::{Name, Value};
use std::rc::Rc;

/// The statistics of a term's keyspace.
pub(super) struct Basis<'a> {
    table: Rc<Table>,
    alias: &'a Name,
}

/// How many rows a LIMIT asks for, if that is known while the query is planned.
pub(super) fn first_rows(limit: &Expr) -> Option<f64> {
    match limit {
        Expr::Literal(value) => value.as_f64().filter(|limit| *limit >= 0.0),
        _ => None,
    }
}

impl<'a> Basis<'a> {
    pub fn of(
        keyspace: &Keyspace,
        alias: &'a Name,
        context: &dyn PlanContext,
    ) -> Option<Basis<'a>> {
        Some(Basis { table: context.statistics(keyspace)?, alias })
    }

    /// Whether there are statistics of the first key of each index of which something is asked. Otherwise estimates would compare
    /// what is known with guesses.
    pub fn describes(&self, candidates: &[Candidate]) -> bool {
        candidates.iter().all(|candidate| {
            let scan = &candidate.scan;
            scan.parts.is_empty()
                || scan.definition.is_primary()
                || self.table.distribution(&key_text(scan, 0)).is_some()
        })
    }

    /// The rows that all conditions leave.
    fn rows(&self, known: &[Expr]) -> f64 {
        let shares = known.iter().map(|condition| self.table.selectivity(condition, self.alias));
        self.table.documents() * shares.product::<f64>()
    }

    /// The cost of a term by an index: until the last row that is wanted, in the wanted order.
    pub fn cost(&self, candidate: &Candidate, known: &[Expr], wanted: &TermNeeds<'_>) -> f64 {
        let costs = self.costs(&candidate.scan, candidate.covered.is_some());
        self.until_last(costs.with_documents, candidate.ordered, known, wanted)
    }

    /// The same of the documents that are in both of two indexes.
    pub fn cost_of_both(
        &self,
        a: &Candidate,
        b: &Candidate,
        known: &[Expr],
        wanted: &TermNeeds<'_>,
    ) -> f64 {
        let costs = self.intersected(&[a.scan.clone(), b.scan.clone()]);
        self.until_last(costs.with_documents, false, known, wanted)
    }

    fn until_last(
        &self,
        found: Estimate,
        ordered: bool,
        known: &[Expr],
        wanted: &TermNeeds<'_>,
    ) -> f64 {
        let share = (self.rows(known) / found.cardinality.max(1.0)).min(1.0);
        let rows = found.filtered(share);
        let sorts = !wanted.order.is_empty() && !ordered;
        match wanted.limit {
            _ if sorts => rows.sorted().cost,
            Some(limit) => rows.cost_of_first(limit),
            None => rows.cost,
        }
    }

    fn costs(&self, scan: &IndexScan, covering: bool) -> Costs {
        let cost = self.index_cost(scan);
        let (scan, fetched) = (cost.scan(), cost.fetched());
        Costs { scan, with_documents: if covering { scan } else { fetched } }
    }

    fn index_cost(&self, scan: &IndexScan) -> IndexCost {
        let documents = self.table.documents();
        let definition = &scan.definition;
        let partial = definition.condition.iter();
        let alias: Name = SELF.into();
        let mut entries = documents
            * partial.map(|condition| self.table.selectivity(condition, &alias)).product::<f64>();
        if scan.parts.is_empty() && !definition.is_complete() && !definition.is_primary() {
            let distribution = self.table.distribution(&key_text(scan, 0));
            entries *= distribution.map_or(1.0, |distribution| distribution.present());
        }
        // As ranges of entries are made: the parts up to the first of which no single values are asked.
        for (at, part) in scan.parts.iter().enumerate() {
            entries *= self.table.share(&key_text(scan, at), part);
            let is_point = |sarg: &Sarg| {
                matches!(sarg, Sarg::Equal(_) | Sarg::In(_) | Sarg::IsNull | Sarg::IsMissing)
            };
            if !part.iter().any(is_point) {
                break;
            }
        }
        let document_bytes = self.table.document_bytes();
        IndexCost { entries, found: entries.min(documents), document_bytes }
    }

    fn intersected(&self, scans: &[IndexScan]) -> Costs {
        let documents = self.table.documents();
        let costs: Vec<IndexCost> = scans.iter().map(|scan| self.index_cost(scan)).collect();
        let shares = costs.iter().map(|cost| cost.found / documents);
        self.combined(&costs, documents * shares.product::<f64>())
    }

    fn united(&self, scans: &[IndexScan]) -> Costs {
        let costs: Vec<IndexCost> = scans.iter().map(|scan| self.index_cost(scan)).collect();
        let found = costs.iter().map(|cost| cost.found).sum::<f64>();
        self.combined(&costs, found.min(self.table.documents()))
    }

    /// Several scans, and the documents that come of them.
    fn combined(&self, costs: &[IndexCost], found: f64) -> Costs {
        let document_bytes = self.table.document_bytes();
        let scans: f64 = costs.iter().map(|cost| cost.scan().cost).sum();
        let one = IndexCost { entries: 0.0, found, document_bytes };
        let fetch = one.fetched().cost - one.scan().cost;
        let scan = Estimate { cost: scans, first_row: scans, ..one.scan() };
        Costs {
            scan,
            with_documents: Estimate { cost: scans + fetch, bytes: document_bytes, ..scan },
        }
    }

    fn of_access(&self, access: &Access, covering: bool) -> Option<Costs> {
        let (documents, bytes) = (self.table.documents(), self.table.document_bytes());
        let plain = |scan: Estimate| Costs { scan, with_documents: scan };
        Some(match access {
            Access::Index(scan) => self.costs(scan, covering),
            Access::Intersect(scans) => self.intersected(scans),
            Access::Union(scans) => self.united(scans),
            Access::Sequential => plain(nacre_cost::sequential(documents, bytes)),
            Access::Primary(_) => {
                let cost =
                    IndexCost { entries: documents, found: documents, document_bytes: bytes };
                Costs { scan: cost.scan(), with_documents: cost.fetched() }
            }
            Access::Keys(Expr::Array(keys)) => plain(nacre_cost::of_keys(keys.len() as f64, bytes)),
            Access::Keys(Expr::Literal(Value::String(_))) => plain(nacre_cost::of_keys(1.0, bytes)),
            // How many keys or hits there are is not known.
            Access::Keys(_) | Access::Search(_) => return None,
        })
    }
}

fn key_text(scan: &IndexScan, at: usize) -> String {
    let key = &scan.definition.keys[at];
    Table::key_of(&key.expr, key.array)
}

/// What a term costs.
pub(super) fn of_access(
    keyspace: &Keyspace,
    access: &Access,
    covering: bool,
    alias: &Name,
    context: &dyn PlanContext,
) -> Option<Costs> {
    Basis::of(keyspace, alias, context)?.of_access(access, covering)
}

/// What a join costs, with its left side.
pub(super) fn of_join(
    left: Option<Estimate>,
    strategy: &Strategy,
    join: &ast::Join,
    context: &dyn PlanContext,
) -> Option<Estimate> {
    let left = left?;
    let estimate = match strategy {
        Strategy::Unnest(_) => return None,
        Strategy::Nested(scan) => {
            let right = scan.costs?.with_documents;
            lookup_join(left, right, left.cardinality * right.cardinality)
        }
        Strategy::Loop(scan) => {
            let right = scan.costs?.with_documents;
            loop_join(left, right, left.cardinality * right.cardinality)
        }
        Strategy::Hash(scan, _, rights) => {
            let right = scan.costs?.with_documents;
            let crate::plan::ScanSource::Keyspace { keyspace, .. } = &scan.source else {
                return None;
            };
            let table = context.statistics(keyspace)?;
            let different = |key: &Expr| table.distinct(key, &scan.alias);
            // Values of several keys are taken for independent, but no row is found less than once in all of them.
            let found: f64 = rights.iter().filter_map(different).product();
            let matches = right.cardinality / found.clamp(1.0, right.cardinality.max(1.0));
            hash_join(left, right, left.cardinality * matches)
        }
    };
    let kept = match (join.kind, join.side) {
        // A row of the left side stays, whatever it is joined to.
        (JoinKind::Nest, _) => left.cardinality,
        (JoinKind::Join, Side::Left) => estimate.cardinality.max(left.cardinality),
        _ => estimate.cardinality,
    };
    Some(Estimate { cardinality: kept, ..estimate })
}
