//! Statements that commands send to the query service.

use crate::failure::{Failure, Kind};
use crate::keyspace::escaped;
use crate::target::Server;
use serde_json::Value;

/// Runs a SQL++ statement with positional arguments; returns its rows.
///
/// # Errors
/// The first error of the query service, with its code.
pub fn rows(server: &Server, text: &str, arguments: &[Value]) -> Result<Vec<Value>, Failure> {
    let arguments = Value::from(arguments.to_vec()).to_string();
    let form = format!("statement={}&args={}", escaped(text), escaped(&arguments));
    let base = server.queries()?;
    let (_, answer) = server.answer_at(&base, "POST", "/query/service", form.as_bytes())?;
    if let Some(error) = answer["errors"].as_array().and_then(|errors| errors.first()) {
        /// Error codes of a missing right and of a refused login.
        const DENIED: [u64; 3] = [13014, 10000, 13012];
        let code = error["code"].as_u64().unwrap_or_default();
        let kind = if DENIED.contains(&code) { Kind::Denied } else { Kind::Failed };
        let text = error["msg"].as_str().unwrap_or_default();
        return Err(Failure::new(kind, format!("{text} (error {code})")));
    }
    match answer["results"].as_array() {
        Some(rows) => Ok(rows.clone()),
        None => Err(format!("{base} answers {answer}").into()),
    }
}

/// Returns the name of a collection for a statement.
///
/// # Errors
/// The reason, if `collection` is not `scope.name`.
pub fn keyspace(bucket: &str, collection: &str) -> Result<String, Failure> {
    let named = collection.split_once('.').filter(|(_, name)| !name.contains('.'));
    let (scope, name) = named
        .ok_or_else(|| format!("{collection:?} is not a collection: name it as scope.name"))?;
    Ok([bucket, scope, name].map(quoted).join("."))
}

/// Returns a name as a SQL++ identifier.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_end_their_quotes() {
        assert_eq!(keyspace("b", "s.c").unwrap(), "`b`.`s`.`c`");
        assert_eq!(keyspace("a`b", "s.c").unwrap(), "`a``b`.`s`.`c`");
        assert!(keyspace("b", "c").is_err() && keyspace("b", "s.c.d").is_err());
    }
}
