//! Writes JSON objects member by member, for the notes of every request: no value has to be built.

use nacre_sql::write_string;
use std::fmt::{Display, Write};

/// The text of an object.
pub(crate) struct ObjectText(String);

impl ObjectText {
    pub fn new() -> ObjectText {
        ObjectText("{".into())
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        write_string(value, &mut self.0);
    }

    /// Adds a member unless the value is `None`.
    pub fn text_if(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub fn number(&mut self, name: &str, value: impl Display) {
        self.name(name);
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{value}");
    }

    /// Adds a member whose value is already JSON.
    pub fn json(&mut self, name: &str, json: &str) {
        self.name(name);
        self.0.push_str(json);
    }

    pub fn end(self) -> String {
        self.0 + "}"
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        write_string(name, &mut self.0);
        self.0.push(':');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_written_order() {
        assert_eq!(ObjectText::new().end(), "{}");
        let mut object = ObjectText::new();
        object.number("least", i64::MIN);
        object.text_if("none", None);
        object.text_if("some", Some("a \"b\""));
        object.json("all", "[1]");
        object.number("most", u64::MAX);
        let expected = r#"{"least":-9223372036854775808,"some":"a \"b\"","all":[1],"most":18446744073709551615}"#;
        assert_eq!(object.end(), expected);
    }
}
