//! Patterns of paths.

use std::cmp::Ordering;
use std::fmt;

/// Pattern of a path, such as `/pools/default/buckets/{bucket}/scopes/{scope}` or `/_plugin/{name}/{rest...}`.
///
/// A segment is either literal text or a parameter that matches exactly one segment. The last segment can be a parameter that matches
/// all remaining segments, even none. Segments are matched after percent-decoding, so that a parameter can contain a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Segment>,
    /// Name of the parameter for the rest of the path.
    rest: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    Literal(&'static str),
    Parameter(&'static str),
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Panics
    /// If `text` does not begin with a slash, has an empty segment, has a parameter without a name or with a name that occurs twice,
    /// or has a rest before its end. Patterns are constants of the program.
    pub fn new(text: &'static str) -> Pattern {
        let path =
            text.strip_prefix('/').unwrap_or_else(|| panic!("{text:?} has no slash at the start"));
        let mut pattern = Pattern { segments: Vec::new(), rest: None };
        for part in path.split('/').filter(|_| !path.is_empty()) {
            assert!(pattern.rest.is_none(), "{text:?} continues after its rest");
            let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
            let Some(name) = name else {
                assert!(
                    !part.is_empty() && !part.contains(['{', '}']),
                    "{text:?} has the segment {part:?}"
                );
                pattern.segments.push(Segment::Literal(part));
                continue;
            };
            let rest = name.strip_suffix("...");
            let name = rest.unwrap_or(name);
            assert!(!name.is_empty() && !pattern.has(name), "{text:?} has the parameter {name:?}");
            match rest {
                Some(name) => pattern.rest = Some(name),
                None => pattern.segments.push(Segment::Parameter(name)),
            }
        }
        pattern
    }

    /// Returns true if the pattern has a parameter with that name.
    pub fn has(&self, name: &str) -> bool {
        let is_named =
            |segment: &Segment| matches!(segment, Segment::Parameter(own) if *own == name);
        self.rest == Some(name) || self.segments.iter().any(is_named)
    }

    /// Matches a path. Returns its parameters.
    pub fn matches<'p, S: AsRef<str>>(&self, path: &'p [S]) -> Option<Parameters<'p>> {
        let is_long_enough = match self.rest {
            None => path.len() == self.segments.len(),
            Some(_) => path.len() >= self.segments.len(),
        };
        if !is_long_enough {
            return None;
        }
        let (own, rest) = path.split_at(self.segments.len());
        let mut parameters = Parameters::default();
        for (segment, text) in self.segments.iter().zip(own) {
            match segment {
                Segment::Literal(literal) if *literal == text.as_ref() => {}
                Segment::Literal(_) => return None,
                Segment::Parameter(name) => parameters.named.push((name, text.as_ref())),
            }
        }
        parameters.rest = rest.iter().map(AsRef::as_ref).collect();
        Some(parameters)
    }

    /// Compares the precedence of two patterns. At the first segment in which they differ, literal text comes before a parameter, and
    /// both come before the rest of a path.
    pub(crate) fn precedence(&self, other: &Pattern) -> Ordering {
        let rank = |pattern: &Pattern, at: usize| match pattern.segments.get(at) {
            Some(Segment::Literal(_)) => 0,
            Some(Segment::Parameter(_)) => 1,
            None if pattern.rest.is_none() => 2,
            None => 3,
        };
        let count = self.segments.len().max(other.segments.len()) + 1;
        let ranks = (0..count).map(|at| rank(self, at).cmp(&rank(other, at)));
        ranks.fold(Ordering::Equal, Ordering::then)
    }

    /// Returns the pattern without the names of its parameters. Two patterns with equal shapes match the same paths.
    pub(crate) fn shape(&self) -> String {
        let segment = |segment: &Segment| match segment {
            Segment::Literal(text) => format!("/{text}"),
            Segment::Parameter(_) => "/{}".to_owned(),
        };
        let rest = if self.rest.is_some() { "/{...}" } else { "" };
        self.segments.iter().map(segment).chain([rest.to_owned()]).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Parameter(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match self.rest {
            Some(name) => write!(f, "/{{{name}...}}"),
            None if self.segments.is_empty() => f.write_str("/"),
            None => Ok(()),
        }
    }
}

/// The parameters of a path, as a pattern has matched them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters<'p> {
    named: Vec<(&'static str, &'p str)>,
    rest: Vec<&'p str>,
}

impl<'p> Parameters<'p> {
    /// Returns the segment that the parameter `name` has matched.
    pub fn get(&self, name: &str) -> Option<&'p str> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Returns the parameters in the order of the path, with the segments that they have matched.
    pub fn named(&self) -> &[(&'static str, &'p str)] {
        &self.named
    }

    /// Returns the segments that the rest of the pattern has matched.
    pub fn rest(&self) -> &[&'p str] {
        &self.rest
    }
}
