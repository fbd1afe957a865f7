//! Errors of user code, with the place in the user's own text.

use crate::modules::Texts;
use std::fmt;

/// A place in the text of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// Why a function could not be compiled, or a call did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not JavaScript, or not a function. Its author must act.
    #[error("{message}{}", At(*.position))]
    Syntax {
        /// What the parser says.
        message: String,
        /// Where.
        position: Option<Position>,
    },
    /// The code threw. Its author must act.
    #[error("{message}{}", At(*.position))]
    Thrown {
        /// Name and message of the exception.
        message: String,
        /// Where it was made.
        position: Option<Position>,
        /// Its member `code`, or that of its `cause`, where that is a string: of what the host refused, the code of
        /// [`HostError`](crate::HostError).
        code: Option<String>,
    },
    /// The call used up its steps. Its author must act.
    #[error("stopped after {0} steps: a loop that does not end?")]
    Steps(u32),
    /// The time of the call was over. Its author must act.
    #[error("it took too long: a loop that does not end?")]
    Late,
    /// A limit on what goes in or out was passed; the message names it.
    #[error("{0}")]
    Limit(String),
    /// The engine itself could not be set up: too little memory.
    #[error("the JavaScript engine could not start: {0}")]
    Engine(String),
}

pub(crate) struct At(pub Option<Position>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Position { line, column }) => write!(f, " (line {line}, column {column})"),
            None => Ok(()),
        }
    }
}

/// A text that user code was compiled from.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// What stack traces call it.
    pub file: &'a str,
    /// The modules that belong to it.
    pub modules: &'a Texts,
    /// Whether it was compiled with one parenthesis in front, which shifts the columns of the first line.
    pub is_wrapped: bool,
}

/// Finds the first frame of `stack` that lies in `place`, or in one of its modules, which is named then.
///
/// Frames look like `    at map (name:3:12)` or `    at name:3:12`.
pub(crate) fn position<'a>(stack: &str, place: Place<'a>) -> Option<(Position, Option<&'a str>)> {
    stack.lines().find_map(|frame| {
        let at = |file: &str| frame.rsplit_once(&format!("{file}:")).map(|(_, at)| at);
        // The name of the main file may end as that of a module.
        let module = place.modules.keys().find_map(|name| Some((at(name)?, Some(&name[..]))));
        let (at, module) = module.or_else(|| Some((at(place.file)?, None)))?;
        let (line, column) = at.trim_end_matches(')').split_once(':')?;
        let (line, column) = (line.parse().ok()?, column.parse::<u32>().ok()?);
        let shift = u32::from(place.is_wrapped && line == 1 && module.is_none());
        Some((Position { line, column: column.saturating_sub(shift).max(1) }, module))
    })
}
