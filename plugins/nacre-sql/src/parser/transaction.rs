//! Parses BEGIN, COMMIT, ROLLBACK, SAVEPOINT and SET TRANSACTION.

use super::Parser;
use crate::Result;
use crate::ast::TransactionStatement;

pub(super) fn transaction(parser: &mut Parser<'_>) -> Result<TransactionStatement> {
    if parser.word("BEGIN") || parser.word("START") {
        if !transaction_word(parser) {
            return parser.fail("expected TRANSACTION, TRAN or WORK");
        }
        if parser.is_word("ISOLATION") {
            isolation(parser)?;
        }
        return Ok(TransactionStatement::Begin);
    }
    if parser.word("COMMIT") {
        let _ = transaction_word(parser);
        return Ok(TransactionStatement::Commit);
    }
    if parser.word("ROLLBACK") {
        let _ = transaction_word(parser);
        let savepoint = match parser.word("TO") {
            true => {
                parser.expect_word("SAVEPOINT")?;
                Some(parser.name()?)
            }
            false => None,
        };
        return Ok(TransactionStatement::Rollback(savepoint));
    }
    if parser.word("SAVEPOINT") {
        return Ok(TransactionStatement::Savepoint(parser.name()?));
    }
    parser.expect_word("SET")?;
    if !transaction_word(parser) {
        return parser.fail("expected TRANSACTION");
    }
    isolation(parser)?;
    Ok(TransactionStatement::SetIsolation)
}

fn transaction_word(parser: &mut Parser<'_>) -> bool {
    parser.word("TRANSACTION") || parser.word("TRAN") || parser.word("WORK")
}

/// Parses the only isolation level.
fn isolation(parser: &mut Parser<'_>) -> Result<()> {
    if parser.word("ISOLATION LEVEL READ COMMITTED") {
        return Ok(());
    }
    parser.fail("expected ISOLATION LEVEL READ COMMITTED")
}
