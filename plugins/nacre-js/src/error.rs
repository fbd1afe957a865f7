//! Errors of user code, with their position in the user's own text.

use crate::modules::Texts;
use std::fmt;

/// A position in the text of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

/// Why a function could not be compiled, or a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not JavaScript, or not a function. Its author must act.
    #[error("{message}{}", ErrorPosition(*.position))]
    Syntax {
        /// The parser's message.
        message: String,
        /// The position.
        position: Option<Position>,
    },
    /// The code threw. Its author must act.
    #[error("{message}{}", ErrorPosition(*.position))]
    Thrown {
        /// Name and message of the exception.
        message: String,
        /// The position where the exception was created.
        position: Option<Position>,
        /// The member `code` of the exception or of its `cause`, if it is a string. For errors of the host, it is
        /// the code of [`HostError`](crate::HostError).
        code: Option<String>,
    },
    /// The call used up its steps. Its author must act.
    #[error("stopped after {0} steps: a loop that does not end?")]
    Steps(u32),
    /// The call timed out. Its author must act.
    #[error("it took too long: a loop that does not end?")]
    Late,
    /// A limit on input or output was exceeded; the message names it.
    #[error("{0}")]
    Limit(String),
    /// The engine could not be created because of too little memory.
    #[error("the JavaScript engine could not start: {0}")]
    Engine(String),
}

pub(crate) struct ErrorPosition(pub Option<Position>);

impl fmt::Display for ErrorPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Position { line, column }) => write!(f, " (line {line}, column {column})"),
            None => Ok(()),
        }
    }
}

/// The text from which user code was compiled.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Its name in stack traces.
    pub file: &'a str,
    /// The modules that belong to it.
    pub modules: &'a Texts,
    /// True if it was compiled with a parenthesis in front, which shifts the columns of the first line.
    pub is_wrapped: bool,
}

/// Finds the first frame of `stack` in `place` or one of its modules. Also returns the name of the module.
///
/// Frames look like `    at map (name:3:12)` or `    at name:3:12`.
pub(crate) fn position<'a>(stack: &str, place: Place<'a>) -> Option<(Position, Option<&'a str>)> {
    stack.lines().find_map(|frame| {
        let at = |file: &str| frame.rsplit_once(&format!("{file}:")).map(|(_, at)| at);
        // The name of the main file may be a suffix of a module's name.
        let module = place.modules.keys().find_map(|name| Some((at(name)?, Some(&name[..]))));
        let (at, module) = module.or_else(|| Some((at(place.file)?, None)))?;
        let (line, column) = at.trim_end_matches(')').split_once(':')?;
        let (line, column) = (line.parse().ok()?, column.parse::<u32>().ok()?);
        let shift = u32::from(place.is_wrapped && line == 1 && module.is_none());
        Some((Position { line, column: column.saturating_sub(shift).max(1) }, module))
    })
}
