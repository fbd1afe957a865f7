//! UPDATE STATISTICS and ANALYZE, behind their first words.
//!
//! ```text
//! UPDATE STATISTICS FOR orders(status, total)        UPDATE STATISTICS FOR orders INDEX (by_status)    … INDEX ALL
//! UPDATE STATISTICS FOR INDEX orders.by_status       UPDATE STATISTICS FOR orders DELETE (status)      … DELETE ALL
//! ANALYZE KEYSPACE orders(status)                    ANALYZE INDEX by_status ON orders
//! ```

use super::Parser;
use crate::ast::{AdminStatement, Expr, IndexKey, Statement, Statistics, StatisticsOf};
use crate::{Result, Value};

impl Parser<'_> {
    pub(super) fn statistics(&mut self) -> Result<Statement> {
        let _ = self.word("FOR");
        let (mut of, mut delete) = (StatisticsOf::All, false);
        let keyspace = if self.word("INDEX") {
            let path = self.path()?;
            let (name, keyspace) = self.index_of(path)?;
            of = StatisticsOf::Indexes(vec![Expr::Literal(Value::String(name))]);
            keyspace
        } else {
            let _ = self.word("KEYSPACE") || self.word("COLLECTION");
            self.path()?
        };
        match () {
            () if of != StatisticsOf::All => {}
            () if self.word("DELETE ALL") => delete = true,
            () if self.word("DELETE") => {
                (of, delete) = (StatisticsOf::Keys(self.described_keys()?), true);
            }
            () if self.word("INDEX ALL") => {}
            () if self.word("INDEX") => of = StatisticsOf::Indexes(self.index_names()?),
            () => of = StatisticsOf::Keys(self.described_keys()?),
        }
        let _ = self.word("USING GSI");
        let with = self.with_options()?;
        let statistics = Statistics { keyspace, of, delete, with };
        Ok(Statement::Admin(Box::new(AdminStatement::Statistics(statistics))))
    }

    fn described_keys(&mut self) -> Result<Vec<IndexKey>> {
        self.expect("(")?;
        let keys = self.list(|p| p.index_key())?;
        self.expect(")")?;
        Ok(keys)
    }
}
