//! Statistics of a keyspace.

use crate::asked::{renamed, sarg};
use crate::{Distribution, Sarg};
use nacre_sql::ast::{Binary, Chain, Expr, Unary};
use nacre_sql::index::SELF;
use nacre_sql::{Name, Value};
use std::collections::BTreeMap;

/// Assumed share of documents that satisfy a condition without statistics.
const SHARE: f64 = 0.3;
/// Assumed share of documents that equal a value, without statistics.
const SHARE_OF_EQUAL: f64 = 0.1;
/// Assumed size of a document in bytes, without statistics.
const DOCUMENT_BYTES: f64 = 1024.0;

/// Statistics of a keyspace, as collected by UPDATE STATISTICS.
#[derive(Clone, Debug, Default)]
pub struct Table {
    documents: f64,
    document_bytes: f64,
    /// Distributions by the text of the key, over the variable [`SELF`]; keys of arrays have the prefix `distinct` or `all`.
    distributions: BTreeMap<String, Distribution>,
}

impl Table {
    /// Reads a row of statistics: `docCount`, `avgDocSize`, and `histograms` with an `expression` each.
    ///
    /// Returns `None` if the row lacks the number of documents.
    pub fn from_row(row: &Value) -> Option<Table> {
        let documents = row.field("docCount").as_f64().filter(|count| *count >= 0.0)?.max(1.0);
        let document_bytes = row.field("avgDocSize").as_f64().unwrap_or(DOCUMENT_BYTES).max(1.0);
        let histograms = row.field("histograms");
        let histograms = histograms.as_object().into_iter().flatten();
        let read = |(_, histogram): (&Name, &Value)| {
            let expression = histogram.field("expression").as_str()?.to_owned();
            Some((expression, Distribution::from_value(histogram, documents)?))
        };
        let distributions = histograms.filter_map(read).collect();
        Some(Table { documents, document_bytes, distributions })
    }

    /// Returns the number of documents; at least 1.
    pub fn documents(&self) -> f64 {
        self.documents
    }

    /// Returns the average size of a document in bytes; at least 1.
    pub fn document_bytes(&self) -> f64 {
        self.document_bytes
    }

    /// Returns the distribution of a key, by its text over the variable [`SELF`].
    pub fn distribution(&self, key: &str) -> Option<&Distribution> {
        self.distributions.get(key)
    }

    /// Returns the text under which the distribution of a key is stored; `array` is true for DISTINCT and false for ALL elements
    /// of an array.
    pub fn key_of(expr: &Expr, array: Option<bool>) -> String {
        match array {
            None => expr.to_string(),
            Some(true) => format!("distinct {expr}"),
            Some(false) => format!("all {expr}"),
        }
    }

    /// Returns the share of the documents, or the entries per document, that satisfy `sargs` on a key: from statistics if they
    /// exist, or else an assumption.
    pub fn share(&self, key: &str, sargs: &[Sarg]) -> f64 {
        let guess = |sarg: &Sarg| match sarg {
            Sarg::Equal(_) | Sarg::IsNull | Sarg::IsMissing => SHARE_OF_EQUAL,
            Sarg::In(_) | Sarg::Above(..) | Sarg::Below(..) | Sarg::Like(..) => SHARE,
            Sarg::IsKnown | Sarg::NotMissing => 1.0,
        };
        match self.distribution(key) {
            Some(distribution) => distribution.share(sargs),
            None => sargs.iter().map(guess).fold(1.0, f64::min),
        }
    }

    /// Returns the share of the documents called `alias` that satisfy a condition.
    pub fn selectivity(&self, condition: &Expr, alias: &Name) -> f64 {
        let share = match condition {
            Expr::Chain(Chain::And, operands) => {
                operands.iter().map(|operand| self.selectivity(operand, alias)).product()
            }
            Expr::Chain(Chain::Or, operands) => {
                let fails = |operand| 1.0 - self.selectivity(operand, alias);
                1.0 - operands.iter().map(fails).product::<f64>()
            }
            Expr::Between(of, low, high) => {
                let sargs =
                    [Sarg::Above((**low).clone(), true), Sarg::Below((**high).clone(), true)];
                self.share(&self.text_of(of, alias), &sargs)
            }
            _ => match self.asked(condition, alias) {
                Some((key, sarg)) => self.share(&key, &[sarg]),
                None => self.other(condition, alias),
            },
        };
        share.clamp(0.0, 1.0)
    }

    fn other(&self, condition: &Expr, alias: &Name) -> f64 {
        match condition {
            Expr::Unary(Unary::Not, inner) => 1.0 - self.selectivity(inner, alias),
            Expr::Literal(value) => f64::from(u8::from(value.truth())),
            Expr::Binary(Binary::Equal, ..) => SHARE_OF_EQUAL,
            _ => SHARE,
        }
    }

    /// Returns the key that a condition constrains, and the constraint.
    fn asked(&self, condition: &Expr, alias: &Name) -> Option<(String, Sarg)> {
        let (a, b) = match condition {
            Expr::Binary(_, a, b) => (&**a, Some(&**b)),
            Expr::Like(of, ..) => (&**of, None),
            Expr::Unary(Unary::Not, inner) => match &**inner {
                Expr::Unary(Unary::IsNull | Unary::IsMissing, of) => (&**of, None),
                _ => return None,
            },
            Expr::Unary(_, of) => (&**of, None),
            _ => return None,
        };
        let own = std::slice::from_ref(alias);
        [Some(a), b].into_iter().flatten().find_map(|key| {
            let text = self.text_of(key, alias);
            self.distribution(&text)?;
            Some((text, sarg(key, condition, own)?))
        })
    }

    fn text_of(&self, expr: &Expr, alias: &Name) -> String {
        renamed(expr, alias, &SELF.into()).to_string()
    }

    /// Returns the number of distinct values of `expr` over the documents called `alias`, if it is known.
    pub fn distinct(&self, expr: &Expr, alias: &Name) -> Option<f64> {
        let found = self.distribution(&self.text_of(expr, alias));
        found.map(|distribution| distribution.distinct().min(self.documents))
    }
}
