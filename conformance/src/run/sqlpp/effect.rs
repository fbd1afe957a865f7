//! The side effects of a case's statements.

/// The changes to undo after a case.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// The text of the statements if they may have changed documents. It contains the names of their
    /// keyspaces.
    pub written: Option<String>,
    /// True if indexes, scopes, collections or functions may have changed.
    pub defines: bool,
    /// True if there may be prepared statements.
    pub prepares: bool,
}

impl Effect {
    /// Returns the combined effect of statements.
    pub fn of<'a>(statements: impl Iterator<Item = &'a str>) -> Effect {
        let (mut effect, mut writes, mut text) = (Effect::default(), false, String::new());
        for statement in statements {
            let first = statement.trim_start().trim_start_matches('(').split_whitespace().next();
            match first.unwrap_or_default().to_ascii_uppercase().as_str() {
                "SELECT" | "FROM" | "WITH" | "EXPLAIN" | "INFER" | "ADVISE" | "VALUES" => {}
                "PREPARE" => effect.prepares = true,
                "CREATE" | "DROP" | "ALTER" | "BUILD" => effect.defines = true,
                _ => writes = true,
            }
            text.push_str(statement);
            text.push('\n');
        }
        effect.written = writes.then_some(text);
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_change_something_are_known() {
        let of = |statement| Effect::of([statement].into_iter());
        assert_eq!(of("  (SELECT 1)"), Effect::default());
        assert_eq!(of("from a select b"), Effect::default());
        assert_eq!(of("UPDATE a SET b = 1").written.as_deref(), Some("UPDATE a SET b = 1\n"));
        assert!(of("PREPARE p AS SELECT 1").prepares && of("create index i on a(b)").defines);
        assert!(of("EXECUTE p").written.is_some(), "what was prepared may write");
    }
}
