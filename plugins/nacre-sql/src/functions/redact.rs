//! `REDACT`: hides private data of a document but shows its structure.
//!
//! ```text
//! REDACT({"card": "4929-1", "city": "Ulm"}, {"pattern": "card"})      {"card": "xxxx-x", "city": "Ulm"}
//! ```
//!
//! The first filter that matches a field's name determines its treatment. A field without a matching filter is treated like its
//! parent; at the top it is kept. Only text is masked; other values are kept, or removed with `omit`. Source: SQL++ reference,
//! REDACT.
//!
//! A filter with an unknown option or a value of a wrong type is refused, so that a typing error cannot expose a document.

use super::{Function, MANY, RESULT_MAX, open, regexp, too_large};
use crate::env::Context;
use crate::{Error, Name, Object, Result, Value, sorted};
use regex_lite::Regex;
use std::sync::Arc;

pub(super) const FUNCTIONS: &[Function] = &[open("REDACT", 1, MANY, redact)];

/// Maximum number of filters; each field is compared with all of them.
const FILTERS_MAX: usize = 1000;

/// The names that a filter selects.
enum Pattern {
    /// All names.
    All,
    /// Names that equal or contain this text, ignoring case if `ignores_case` is true.
    Text {
        text: String,
        is_exact: bool,
        ignores_case: bool,
    },
    Regex(Arc<Regex>),
}

/// A rule of redaction: the fields that it selects, and their replacement.
struct Filter {
    pattern: Pattern,
    /// True to replace names too.
    hides_name: bool,
    /// True to mask blanks and punctuation too.
    is_strict: bool,
    omits: bool,
    mask: Name,
    /// True if one mask replaces the whole text.
    has_fixed_length: bool,
    /// True if the fields that match the pattern are kept and all others are redacted.
    excludes: bool,
}

/// The treatment of a field.
#[derive(Clone, Copy)]
enum Treatment<'a> {
    Keep,
    Redact(&'a Filter),
}

fn redact(args: &[Value], context: &Context<'_>) -> Result<Value> {
    if args.iter().any(Value::is_missing) {
        return Ok(Value::Missing);
    }
    let (of, filters) = (&args[0], &args[1..]);
    if of.as_object().is_none() && of.as_array().is_none() || filters.contains(&Value::Null) {
        return Ok(Value::Null);
    }
    if filters.len() > FILTERS_MAX {
        return Err(Error::execution(format!("REDACT takes {FILTERS_MAX} filters at most")));
    }
    let filters = filters.iter().map(|filter| Filter::read(filter, context));
    let mut filters = filters.collect::<Result<Vec<_>>>()?;
    if filters.is_empty() {
        filters.push(Filter::read(&Value::object::<Name>([]), context)?);
    }
    Redaction { filters: &filters, bytes: 0 }.value(of, None)
}

impl Filter {
    fn read(options: &Value, context: &Context<'_>) -> Result<Filter> {
        let Some(members) = options.as_object() else {
            return Err(Error::execution(format!(
                "A filter of REDACT is an object, not {options}"
            )));
        };
        let mut filter = Filter {
            pattern: Pattern::All,
            hides_name: false,
            is_strict: false,
            omits: false,
            mask: "x".into(),
            has_fixed_length: false,
            excludes: false,
        };
        let (mut pattern, mut is_regex) = (None, false);
        let (mut is_exact, mut ignores_case) = (false, false);
        for (name, value) in members {
            let wrong = |wanted: &str| {
                Error::execution(format!("Option {name} of REDACT is {wanted}, not {value}"))
            };
            let truth = || match value {
                Value::Bool(truth) => Ok(*truth),
                _ => Err(wrong("true or false")),
            };
            let text = || value.as_str().map(Name::from).ok_or_else(|| wrong("a text"));
            match &**name {
                "pattern" => pattern = Some(text()?),
                "regex" => is_regex = truth()?,
                "exact" => is_exact = truth()?,
                "ignorecase" => ignores_case = truth()?,
                "name" => filter.hides_name = truth()?,
                "strict" => filter.is_strict = truth()?,
                "omit" => filter.omits = truth()?,
                "mask" => filter.mask = text()?,
                "fixedlength" => filter.has_fixed_length = truth()?,
                "exclude" => filter.excludes = truth()?,
                _ => return Err(Error::execution(format!("REDACT has no option {name}"))),
            }
        }
        if let Some(pattern) = pattern {
            filter.pattern = Pattern::new(&pattern, is_regex, is_exact, ignores_case, context)?;
        }
        Ok(filter)
    }

    /// Returns a text in which the mask replaces the characters.
    fn masked(&self, text: &str) -> Result<Value> {
        if self.has_fixed_length {
            return Ok(self.mask.clone().into());
        }
        let masks = text.chars().count().saturating_mul(self.mask.len());
        if masks.saturating_add(text.len()) > RESULT_MAX {
            return Err(too_large());
        }
        let mut masked = String::with_capacity(text.len());
        for c in text.chars() {
            match self.is_strict || c.is_alphanumeric() {
                true => masked.push_str(&self.mask),
                false => masked.push(c),
            }
        }
        Ok(masked.into())
    }
}

impl Pattern {
    fn new(
        pattern: &str,
        is_regex: bool,
        is_exact: bool,
        ignores_case: bool,
        context: &Context<'_>,
    ) -> Result<Pattern> {
        if !is_regex {
            let text = if ignores_case { pattern.to_lowercase() } else { pattern.to_owned() };
            return Ok(Pattern::Text { text, is_exact, ignores_case });
        }
        let whole = if is_exact { format!("^(?:{pattern})$") } else { pattern.to_owned() };
        let whole = if ignores_case { format!("(?i){whole}") } else { whole };
        regexp::compile(&whole, context).map(Pattern::Regex)
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            Pattern::All => true,
            Pattern::Regex(regex) => regex.is_match(name),
            Pattern::Text { text, is_exact, ignores_case } => {
                let lower = if *ignores_case { name.to_lowercase() } else { String::new() };
                let name = if *ignores_case { lower.as_str() } else { name };
                if *is_exact { name == text } else { name.contains(text) }
            }
        }
    }
}

/// A redaction in progress.
struct Redaction<'a> {
    filters: &'a [Filter],
    /// Size of the text that it has created, in bytes.
    bytes: usize,
}

impl<'a> Redaction<'a> {
    /// Returns the treatment of a field within a field with the treatment `outer`; `None` at the top.
    fn treatment(&self, name: &str, outer: Option<Treatment<'a>>) -> Option<Treatment<'a>> {
        for filter in self.filters {
            let fits = filter.pattern.fits(name);
            // A filter for all fields does not select this one in particular, so the treatment of the parent continues.
            if matches!(filter.pattern, Pattern::All) && outer.is_some() {
                return outer;
            }
            match (filter.excludes, fits) {
                (true, true) => return Some(Treatment::Keep),
                (true, false) => return outer.or(Some(Treatment::Redact(filter))),
                (false, true) => return Some(Treatment::Redact(filter)),
                (false, false) => {}
            }
        }
        outer
    }

    /// Returns the treatment of text outside of any field: that of the first filter that is not limited to certain names.
    fn nameless(&self) -> Option<Treatment<'a>> {
        let about_all =
            |filter: &&Filter| filter.excludes != matches!(filter.pattern, Pattern::All);
        self.filters.iter().find(about_all).map(Treatment::Redact)
    }

    fn value(&mut self, of: &Value, outer: Option<Treatment<'a>>) -> Result<Value> {
        match of {
            Value::Object(fields) => self.object(fields, outer),
            Value::Array(elements) => {
                let elements = elements.iter().map(|element| self.value(element, outer));
                Ok(elements.collect::<Result<Vec<_>>>()?.into())
            }
            Value::String(text) => match outer.or_else(|| self.nameless()) {
                Some(Treatment::Redact(filter)) => {
                    let masked = filter.masked(text)?;
                    self.bytes += masked.as_str().map_or(0, str::len);
                    if self.bytes > RESULT_MAX { Err(too_large()) } else { Ok(masked) }
                }
                _ => Ok(of.clone()),
            },
            other => Ok(other.clone()),
        }
    }

    fn object(&mut self, fields: &Object, outer: Option<Treatment<'a>>) -> Result<Value> {
        let mut redacted = Object::default();
        for (at, (name, value)) in sorted(fields).into_iter().enumerate() {
            let treatment = self.treatment(name, outer);
            let mut shown = name.clone();
            if let Some(Treatment::Redact(filter)) = treatment {
                if filter.omits {
                    continue;
                }
                if filter.hides_name {
                    shown = hidden(at, fields);
                }
            }
            redacted.insert(shown, self.value(value, treatment)?);
        }
        Ok(Value::Object(Arc::new(redacted)))
    }
}

/// Returns a replacement for the name of the field at this position in name order. No field of the object has that name.
fn hidden(at: usize, fields: &Object) -> Name {
    let mut name = format!("f{at:04}");
    while fields.contains_key(name.as_str()) {
        name.insert(0, 'f');
    }
    name.into()
}
