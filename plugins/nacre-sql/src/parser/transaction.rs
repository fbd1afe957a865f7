//! BEGIN, COMMIT, ROLLBACK, SAVEPOINT and SET TRANSACTION.

use super::Parser;
use crate::Result;
use crate::ast::TransactionStatement;

impl Parser<'_> {
    pub(super) fn transaction(&mut self) -> Result<TransactionStatement> {
        if self.word("BEGIN") || self.word("START") {
            if !self.transaction_word() {
                return self.fail("expected TRANSACTION, TRAN or WORK");
            }
            if self.is_word("ISOLATION") {
                self.isolation()?;
            }
            return Ok(TransactionStatement::Begin);
        }
        if self.word("COMMIT") {
            let _ = self.transaction_word();
            return Ok(TransactionStatement::Commit);
        }
        if self.word("ROLLBACK") {
            let _ = self.transaction_word();
            let savepoint = match self.word("TO") {
                true => {
                    self.expect_word("SAVEPOINT")?;
                    Some(self.name()?)
                }
                false => None,
            };
            return Ok(TransactionStatement::Rollback(savepoint));
        }
        if self.word("SAVEPOINT") {
            return Ok(TransactionStatement::Savepoint(self.name()?));
        }
        self.expect_word("SET")?;
        if !self.transaction_word() {
            return self.fail("expected TRANSACTION");
        }
        self.isolation()?;
        Ok(TransactionStatement::SetIsolation)
    }

    fn transaction_word(&mut self) -> bool {
        self.word("TRANSACTION") || self.word("TRAN") || self.word("WORK")
    }

    /// There is one level.
    fn isolation(&mut self) -> Result<()> {
        if self.word("ISOLATION LEVEL READ COMMITTED") {
            return Ok(());
        }
        self.fail("expected ISOLATION LEVEL READ COMMITTED")
    }
}
