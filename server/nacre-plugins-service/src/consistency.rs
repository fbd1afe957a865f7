//! The consistency that requests require of an index.

use nacre_sandbox::{Consistency, Failure};
use nacre_types::{Seqno, Vbid};
use serde_json::Value;

/// The state that an index must have before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any state.
    Anything,
    /// All writes before the request.
    Everything,
    /// These seqnos of these vBuckets.
    Vector(Vec<(Vbid, Seqno)>),
}

impl Wanted {
    /// Reads the parameters of a request for an index of `bucket`.
    ///
    /// # Errors
    /// Code 1065 for an invalid parameter. Source: Couchbase's query service.
    pub fn read(consistency: &Consistency, bucket: &str) -> Result<Wanted, Failure> {
        match consistency.level.as_str() {
            "" | "not_bounded" => Ok(Wanted::Anything),
            "request_plus" | "statement_plus" => Ok(Wanted::Everything),
            "at_plus" => vector(&consistency.vectors, bucket)
                .map(Wanted::Vector)
                .ok_or_else(|| malformed("scan_vectors", &consistency.vectors)),
            other => Err(malformed("scan_consistency", other)),
        }
    }
}

fn malformed(name: &str, value: &str) -> Failure {
    let shown: String = value.chars().take(100).collect();
    Failure { code: 1065, message: format!("Unrecognized value for {name}: {shown}"), retry: false }
}

/// Returns the part of `scan_vectors` for a bucket, or all of `scan_vector`. Each vBucket has `[seqno, "uuid"]`, by
/// number or in a list of all vBuckets.
fn vector(text: &str, bucket: &str) -> Option<Vec<(Vbid, Seqno)>> {
    let whole: Value = serde_json::from_str(text).ok()?;
    let of_bucket = whole.get(bucket).unwrap_or(&whole);
    let seqno = |entry: &Value| {
        let number = entry.get(0).unwrap_or(entry);
        number.as_u64().or_else(|| entry.get("value")?.as_u64()).map(Seqno)
    };
    match of_bucket {
        Value::Array(entries) => entries
            .iter()
            .enumerate()
            .map(|(index, entry)| Some((Vbid(u16::try_from(index).ok()?), seqno(entry)?)))
            .collect(),
        // Vectors of another bucket have no meaning here.
        Value::Object(entries) if entries.keys().any(|key| key.parse::<u16>().is_err()) => {
            Some(Vec::new())
        }
        Value::Object(entries) => entries
            .iter()
            .map(|(key, entry)| Some((Vbid(key.parse().ok()?), seqno(entry)?)))
            .collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(level: &str, vectors: &str) -> Result<Wanted, u32> {
        let consistency = Consistency { level: level.into(), vectors: vectors.into() };
        Wanted::read(&consistency, "b").map_err(|failure| failure.code)
    }

    #[test]
    fn levels_and_vectors_are_read() {
        assert_eq!(read("", ""), Ok(Wanted::Anything));
        assert_eq!(read("request_plus", ""), Ok(Wanted::Everything));
        let expected = Ok(Wanted::Vector(vec![(Vbid(7), Seqno(3))]));
        assert_eq!(read("at_plus", r#"{"b":{"7":[3,"11"]}}"#), expected);
        assert_eq!(read("at_plus", r#"{"7":[3,"11"]}"#), expected);
        assert_eq!(read("at_plus", r#"{"c":{"7":[3,"11"]}}"#), Ok(Wanted::Vector(vec![])));
        assert_eq!(
            read("at_plus", r#"[[1,"11"],[0,"12"]]"#),
            Ok(Wanted::Vector(vec![(Vbid(0), Seqno(1)), (Vbid(1), Seqno(0))]))
        );
        assert_eq!(read("at_plus", "7"), Err(1065));
        assert_eq!(read("sometimes", ""), Err(1065));
    }
}
