//! Parses UPDATE STATISTICS and ANALYZE after their first words.
//!
//! ```text
//! UPDATE STATISTICS FOR orders(status, total)        UPDATE STATISTICS FOR orders INDEX (by_status)    … INDEX ALL
//! UPDATE STATISTICS FOR INDEX orders.by_status       UPDATE STATISTICS FOR orders DELETE (status)      … DELETE ALL
//! ANALYZE KEYSPACE orders(status)                    ANALYZE INDEX by_status ON orders
//! ```

use super::Parser;
use super::ddl::{index_key, index_names, index_of, with_options};
use crate::ast::{AdminStatement, Expr, IndexKey, Statement, Statistics, StatisticsOf};
use crate::{Result, Value};

pub(super) fn statistics(parser: &mut Parser<'_>) -> Result<Statement> {
    let _ = parser.word("FOR");
    let (mut of, mut delete) = (StatisticsOf::All, false);
    let keyspace = if parser.word("INDEX") {
        let path = parser.path()?;
        let (name, keyspace) = index_of(parser, path)?;
        of = StatisticsOf::Indexes(vec![Expr::Literal(Value::String(name))]);
        keyspace
    } else {
        let _ = parser.word("KEYSPACE") || parser.word("COLLECTION");
        parser.path()?
    };
    match () {
        () if of != StatisticsOf::All => {}
        () if parser.word("DELETE ALL") => delete = true,
        () if parser.word("DELETE") => {
            (of, delete) = (StatisticsOf::Keys(described_keys(parser)?), true);
        }
        () if parser.word("INDEX ALL") => {}
        () if parser.word("INDEX") => of = StatisticsOf::Indexes(index_names(parser)?),
        () => of = StatisticsOf::Keys(described_keys(parser)?),
    }
    let _ = parser.word("USING GSI");
    let with = with_options(parser)?;
    let statistics = Statistics { keyspace, of, delete, with };
    Ok(Statement::Admin(Box::new(AdminStatement::Statistics(statistics))))
}

fn described_keys(parser: &mut Parser<'_>) -> Result<Vec<IndexKey>> {
    parser.expect("(")?;
    let keys = parser.list(index_key)?;
    parser.expect(")")?;
    Ok(keys)
}
