//! `FINDERR`: finds the errors of the query service by code or by text.
//!
//! The table is `find_error.txt`, one line per code: code, whether it is a user error, message, reason, and remedy. Source: SQL++
//! reference, FINDERR, for the members; the texts are those of this service.

use super::{Function, regexp, strict};
use crate::env::Context;
use crate::{Result, Value};

static TABLE: &str = include_str!("find_error.txt");

pub(super) const FUNCTIONS: &[Function] = &[strict("FINDERR", 1, 1, find)];

/// A line of the table.
struct Known<'a> {
    code: u32,
    user_error: &'a str,
    description: &'a str,
    reason: &'a str,
    user_action: &'a str,
}

impl Known<'_> {
    fn read(line: &str) -> Option<Known<'_>> {
        let mut parts = line.split('|');
        Some(Known {
            code: parts.next()?.parse().ok()?,
            user_error: parts.next()?,
            description: parts.next()?,
            reason: parts.next()?,
            user_action: parts.next()?,
        })
    }

    fn has(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        [self.description, self.reason, self.user_action].into_iter().any(is_wanted)
    }

    fn row(&self) -> Value {
        let list = |text: &str| Value::from(vec![Value::from(text)]);
        Value::object([
            ("applies_to", "Server".into()),
            ("code", i64::from(self.code).into()),
            ("description", self.description.into()),
            ("reason", list(self.reason)),
            ("user_action", list(self.user_action)),
            ("user_error", self.user_error.into()),
        ])
    }
}

/// Returns the known codes, in order.
pub fn codes() -> impl Iterator<Item = u32> {
    TABLE.lines().filter_map(|line| Some(Known::read(line)?.code))
}

fn find(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let all = TABLE.lines().filter_map(Known::read);
    let found: Vec<Value> = match &args[0] {
        Value::Int(_) | Value::Float(_) => {
            let code = args[0].as_i64();
            all.filter(|known| Some(i64::from(known.code)) == code)
                .map(|known| known.row())
                .collect()
        }
        Value::String(text) => {
            // A text that is not a regular expression can still occur in a message.
            let regex = regexp::compile(text, context).ok();
            let fits = |part: &str| {
                part.contains(&**text) || regex.as_ref().is_some_and(|regex| regex.is_match(part))
            };
            all.filter(|known| known.has(fits)).map(|known| known.row()).collect()
        }
        _ => return Ok(Value::Null),
    };
    Ok(found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_read_and_codes_ascend() {
        let codes: Vec<u32> = codes().collect();
        assert_eq!(codes.len(), TABLE.lines().count());
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        for line in TABLE.lines() {
            assert_eq!(line.split('|').count(), 5, "{line}");
            assert!(["Yes", "No", "Maybe"].contains(&line.split('|').nth(1).unwrap()), "{line}");
        }
    }
}
