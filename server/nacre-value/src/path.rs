//! Sub-document paths: the position in a document that an operation accesses.
//!
//! ```text
//! name               a member of the root object
//! orders[0].total    first element of an array, then a member of it
//! orders[-1]         last element; no other negative number exists
//! [2]                an element of a root array
//! `a.b`.c            back-ticks quote the characters of the grammar, in a whole name or a part of it; two back-ticks
//! mean one
//! a.[0]  a.  a[]     other forms that Couchbase accepts: a dot before a bracket or at the end, and `[]` for `[0]`
//! ```
//!
//! Names are JSON string contents: a quotation mark or backslash in a name is escaped in the path as in the document. A
//! name is never empty. Source: the sub-document API of the memcached binary protocol; grammar and limits as in
//! Couchbase.

use std::borrow::Cow;

/// Maximum length of a path in bytes.
pub const BYTES_MAX: usize = 1024;

/// Maximum number of components of a path, and maximum nesting for sub-document operations.
pub const DEPTH_MAX: usize = 32;

/// The reason why a path was refused. The client must fix it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The path does not match the grammar.
    Invalid,
    /// The path has more than [`BYTES_MAX`] bytes.
    TooLong,
    /// The path has more than [`DEPTH_MAX`] components.
    TooDeep,
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> crate::Error {
        match error {
            Error::Invalid => crate::Error::PathInvalid,
            Error::TooLong | Error::TooDeep => crate::Error::PathTooBig,
        }
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component<'p> {
    /// A member of an object, as the content of a JSON string (without quotation marks, with its escapes).
    Name(Cow<'p, str>),
    /// An element of an array, counted from 0.
    Index(usize),
    /// The last element of an array, written `[-1]`.
    Last,
}

/// A path from the root of the document. A path without components is the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path<'p> {
    components: Vec<Component<'p>>,
}

impl<'p> Path<'p> {
    /// Parses a path as sent by a client. Empty input is the root.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn parse(bytes: &'p [u8]) -> Result<Path<'p>, Error> {
        if bytes.len() > BYTES_MAX {
            return Err(Error::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
        let mut components = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if components.len() == DEPTH_MAX {
                return Err(Error::TooDeep);
            }
            let component;
            (component, rest) = if rest.starts_with('[') { index(rest)? } else { name(rest)? };
            components.push(component);
        }
        Ok(Path { components })
    }

    /// Returns the steps from the root.
    pub fn components(&self) -> &[Component<'p>] {
        &self.components
    }

    /// Returns true if this is the root of the document.
    pub fn is_root(&self) -> bool {
        self.components.is_empty()
    }
}

/// Splits `[12]rest`, `[-1]rest` or `[12].rest` into the index and the rest.
fn index(text: &str) -> Result<(Component<'_>, &str), Error> {
    let (digits, rest) = text[1..].split_once(']').ok_or(Error::Invalid)?;
    if !rest.is_empty() && !rest.starts_with(['[', '.']) {
        return Err(Error::Invalid);
    }
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    if digits == "-1" {
        return Ok((Component::Last, rest));
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Invalid);
    }
    let index = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| Error::Invalid)? };
    Ok((Component::Index(index), rest))
}

/// Splits `name.rest`, `` `quoted`.rest `` or `name[0]` into the name and the rest without its dot.
fn name(text: &str) -> Result<(Component<'_>, &str), Error> {
    let mut is_quoted = false;
    let end = text.find(|sign| {
        is_quoted ^= sign == '`';
        !is_quoted && matches!(sign, '.' | '[' | ']')
    });
    if end.is_none() && is_quoted {
        return Err(Error::Invalid);
    }
    let (written, rest) = text.split_at(end.unwrap_or(text.len()));
    if rest.starts_with(']') {
        return Err(Error::Invalid);
    }
    let quoted_whole = written.strip_prefix('`').and_then(|inner| inner.strip_suffix('`'));
    let name = quoted_whole.unwrap_or(written);
    if name.is_empty() {
        return Err(Error::Invalid);
    }
    check_name(name)?;
    let name = if name.contains('`') { unquoted(name).into() } else { name.into() };
    Ok((Component::Name(name), rest.strip_prefix('.').unwrap_or(rest)))
}

/// Removes single back-ticks from a name, and replaces doubled ones by one.
fn unquoted(name: &str) -> String {
    let parts: Vec<String> = name.split("``").map(|part| part.replace('`', "")).collect();
    parts.join("`")
}

/// Checks a name. A name is copied into the document between quotation marks, so it must be the content of a JSON
/// string.
fn check_name(name: &str) -> Result<(), Error> {
    let quoted = ["\"", name, "\""].concat();
    let end = crate::json::string_end(quoted.as_bytes(), 0);
    (end == Some(quoted.len())).then_some(()).ok_or(Error::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders a path with separated steps, or the reason why it was refused.
    fn show(text: &str) -> String {
        let path = match Path::parse(text.as_bytes()) {
            Ok(path) => path,
            Err(error) => return format!("{error:?}"),
        };
        let step = |component: &Component<'_>| match component {
            Component::Name(name) => format!("<{name}>"),
            Component::Index(index) => format!("#{index}"),
            Component::Last => "#last".to_owned(),
        };
        path.components().iter().map(step).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn paths_are_read_step_by_step() {
        let table = [
            "",
            "a",
            "a.b",
            "a[0]",
            "a[-1].b[12]",
            "[0]",
            "[0][1].c",
            "`a.b`.c",
            "`a``b`",
            "`[0]`[0]",
            "a b",
            "é",
            r#"say\"hi\""#,
            "$document.CAS",
            "a.[0]",
            "a.",
            "a[0].",
            "a[]",
            "a[01]",
            "a`b`",
            "`a`b",
            "trailing``",
            "x`.`y.z",
        ];
        let shown: Vec<String> =
            table.iter().map(|text| format!("{text} => {}", show(text))).collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
         => 
        a => <a>
        a.b => <a> <b>
        a[0] => <a> #0
        a[-1].b[12] => <a> #last <b> #12
        [0] => #0
        [0][1].c => #0 #1 <c>
        `a.b`.c => <a.b> <c>
        `a``b` => <a`b>
        `[0]`[0] => <[0]> #0
        a b => <a b>
        é => <é>
        say\"hi\" => <say\"hi\">
        $document.CAS => <$document> <CAS>
        a.[0] => <a> #0
        a. => <a>
        a[0]. => <a> #0
        a[] => <a> #0
        a[01] => <a> #1
        a`b` => <ab>
        `a`b => <ab>
        trailing`` => <trailing`>
        x`.`y.z => <x.y> <z>
        "#);
    }

    #[test]
    fn malformed_paths_are_invalid() {
        let table = [
            ".",
            ".a",
            "a..b",
            "a[",
            "a[0",
            "a[x]",
            "a[-2]",
            "a[+1]",
            "a[0]b",
            "a]",
            "`a",
            "a\"b",
            "a\\",
            "a\nb",
            "``",
            "a.``.b",
            "``.b",
            "a[0]..b",
            "a[0].]",
            "a[99999999999999999999999]",
        ];
        for text in table {
            assert_eq!(show(text), "Invalid", "{text:?}");
        }
        assert_eq!(Path::parse(b"\xff"), Err(Error::Invalid));
    }

    #[test]
    fn limits_have_different_errors() {
        assert_eq!(show(&"a".repeat(BYTES_MAX + 1)), "TooLong");
        assert_eq!(show(&["a"; DEPTH_MAX + 1].join(".")), "TooDeep");
        assert_eq!(show(&"[0]".repeat(DEPTH_MAX + 1)), "TooDeep");
        assert!(Path::parse(["a"; DEPTH_MAX].join(".").as_bytes()).is_ok());
        assert!(Path::parse("a".repeat(BYTES_MAX).as_bytes()).is_ok());
    }
}
