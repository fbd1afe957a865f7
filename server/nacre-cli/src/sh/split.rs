//! Splits text into statements and commands.
//!
//! A statement ends with a `;` outside of strings, quoted names and comments. A command begins with `\` where a
//! statement could begin, and ends with its line; `help`, `quit` and `exit` alone on a line are commands, too. Text may
//! arrive in pieces of whole lines.
//!
//! ```text
//! SELECT ";" -- one; statement
//!   AS a;               Statement("SELECT \";\" -- one; statement\n  AS a")
//! \set output json      Command("set output json")
//! ```

/// A statement or command with its line number.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The line on which it begins, from 1.
    pub line: usize,
    /// The kind.
    pub kind: Kind,
}

/// The kind of a piece.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A statement without its `;`.
    Statement(String),
    /// A command without its `\`.
    Command(String),
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Only blanks and comments so far.
    Between,
    Statement,
    Command,
}

#[derive(Clone, Copy, PartialEq)]
enum Context {
    Nothing,
    Quotes(u8),
    LineComment,
    BlockComment,
}

/// Commands that need no `\`: no statement begins with these words.
const BARE_COMMANDS: [&str; 3] = ["help", "quit", "exit"];

/// Splits text into pieces. It examines each byte once, even if the text arrives in many parts.
pub struct Splitter {
    text: String,
    /// Number of examined bytes of `text`.
    at: usize,
    state: State,
    inside: Context,
    /// The index in `text` at which the statement or command begins.
    start: usize,
    line: usize,
    start_line: usize,
}

impl Splitter {
    /// Returns a splitter without text.
    pub fn new() -> Splitter {
        Splitter {
            text: String::new(),
            at: 0,
            state: State::Between,
            inside: Context::Nothing,
            start: 0,
            line: 1,
            start_line: 1,
        }
    }

    /// Adds whole lines.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Returns the number of bytes of an incomplete piece.
    pub fn pending_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the next complete piece.
    pub fn next(&mut self) -> Option<Piece> {
        while let Some(&byte) = self.text.as_bytes().get(self.at) {
            let following = self.text.as_bytes().get(self.at + 1).copied();
            self.at += 1;
            self.line += usize::from(byte == b'\n');
            if self.state == State::Command {
                if byte == b'\n' {
                    return Some(self.take(self.at - 1));
                }
            } else if self.inside != Context::Nothing {
                self.advance_inside(byte, following);
            } else if byte == b';' {
                if self.state == State::Statement {
                    return Some(self.take(self.at - 1));
                }
            } else {
                self.advance(byte, following);
            }
        }
        None
    }

    /// Returns the rest at the end of the text: a statement without `;`, or a command without the end of its line.
    pub fn finish(mut self) -> Option<Piece> {
        (self.state != State::Between).then(|| self.take(self.text.len()))
    }

    /// Returns true if no incomplete piece has begun.
    pub fn is_between(&self) -> bool {
        self.state == State::Between && self.inside != Context::BlockComment
    }

    fn advance(&mut self, byte: u8, following: Option<u8>) {
        match (byte, following) {
            (b'-', Some(b'-')) => self.inside = Context::LineComment,
            (b'/', Some(b'*')) => {
                self.inside = Context::BlockComment;
                // Otherwise the star of `/*/` would end it, too.
                self.at += 1;
            }
            (b'\\', _) if self.state == State::Between => self.begin(State::Command, self.at),
            _ if byte.is_ascii_whitespace() => {}
            _ => {
                if self.state == State::Between {
                    let state = match self.has_bare_command(self.at - 1) {
                        true => State::Command,
                        false => State::Statement,
                    };
                    self.begin(state, self.at - 1);
                    if state == State::Command {
                        return;
                    }
                }
                if matches!(byte, b'"' | b'\'' | b'`') {
                    self.inside = Context::Quotes(byte);
                }
            }
        }
    }

    /// Returns true if a word of [`BARE_COMMANDS`] is alone on the line from byte `start`, perhaps with a `;`.
    fn has_bare_command(&self, start: usize) -> bool {
        let line = self.text[start..].lines().next().unwrap_or_default();
        let word = line.trim_end().trim_end_matches(';').trim_end();
        BARE_COMMANDS.iter().any(|command| command.eq_ignore_ascii_case(word))
    }

    /// Continues inside a string, name or comment. A doubled quote ends one string and begins the next, which makes no
    /// difference here.
    fn advance_inside(&mut self, byte: u8, following: Option<u8>) {
        match self.inside {
            Context::Quotes(quote) if byte == quote => self.inside = Context::Nothing,
            Context::Quotes(b'"' | b'\'') if byte == b'\\' => {
                self.line += usize::from(following == Some(b'\n'));
                self.at += usize::from(following.is_some());
            }
            Context::LineComment if byte == b'\n' => self.inside = Context::Nothing,
            Context::BlockComment if byte == b'*' && following == Some(b'/') => {
                self.inside = Context::Nothing;
                self.at += 1;
            }
            _ => {}
        }
    }

    fn begin(&mut self, state: State, start: usize) {
        (self.state, self.start, self.start_line) = (state, start, self.line);
    }

    fn take(&mut self, end: usize) -> Piece {
        let text = self.text[self.start..end].trim_end().to_owned();
        let kind = match self.state {
            State::Command => Kind::Command(text),
            State::Statement | State::Between => Kind::Statement(text),
        };
        self.text.drain(..self.at);
        self.at = 0;
        self.state = State::Between;
        Piece { line: self.start_line, kind }
    }
}

/// Returns the first word of a statement in upper case; empty if it begins with something else.
pub fn first_word(statement: &str) -> String {
    let letters = statement.trim_start().chars().take_while(char::is_ascii_alphabetic);
    letters.map(|letter| letter.to_ascii_uppercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all pieces, one per line: line number, kind, text.
    fn split(text: &str) -> String {
        let mut splitter = Splitter::new();
        let mut pieces = Vec::new();
        for line in text.split_inclusive('\n') {
            splitter.push(line);
            pieces.extend(std::iter::from_fn(|| splitter.next()));
        }
        pieces.extend(splitter.finish());
        let lines = pieces.into_iter().map(|piece| match piece.kind {
            Kind::Statement(text) => format!("{} sql {text:?}\n", piece.line),
            Kind::Command(text) => format!("{} \\{text}\n", piece.line),
        });
        lines.collect()
    }

    #[test]
    fn a_statement_ends_with_a_semicolon_outside_of_strings_and_comments() {
        insta::assert_snapshot!(split(
            "SELECT 1; SELECT ';', \"a\\\";b\", 'it''s; so', `x``;y\\`;\n\
             SELECT 1 -- not; here\n  + 2 /* nor; '\nhere */ + 3 / 4 - 5;\n;;\n/*/ ; */ SELECT '\\\n;';SELECT\n 7"
        ), @r#"
        1 sql "SELECT 1"
        1 sql "SELECT ';', \"a\\\";b\", 'it''s; so', `x``;y\\`"
        2 sql "SELECT 1 -- not; here\n  + 2 /* nor; '\nhere */ + 3 / 4 - 5"
        6 sql "SELECT '\\\n;'"
        7 sql "SELECT\n 7"
        "#);
    }

    #[test]
    fn a_command_ends_with_its_line_and_begins_none_within_a_statement() {
        insta::assert_snapshot!(split(
            "\\set output json\n-- why; not\n  \\echo a; b\nSELECT 1\n\\echo 2\n;\\quit"
        ), @r#"
        1 \set output json
        3 \echo a; b
        4 sql "SELECT 1\n\\echo 2"
        6 \quit
        "#);
    }

    #[test]
    fn begun_and_complete_statements_are_distinguished() {
        for (text, between) in [
            ("", true),
            (" -- a\n", true),
            ("SELECT 1;\n", true),
            ("/* a\n", false),
            ("SELECT 1\n", false),
            ("SELECT 1; SELECT\n", false),
            ("\\help\n", true),
            ("SELECT ';\n", false),
        ] {
            let mut splitter = Splitter::new();
            splitter.push(text);
            while splitter.next().is_some() {}
            assert_eq!(splitter.is_between(), between, "{text:?}");
        }
    }

    #[test]
    fn the_first_word_is_in_capitals() {
        assert_eq!(first_word("explain select 1"), "EXPLAIN");
        assert_eq!(first_word("(SELECT 1)"), "");
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_lost_or_cut_within_a_character(text in "[ab;'\"`\\\\/*\n é-]{0,40}") {
            let mut whole = Splitter::new();
            whole.push(&text);
            let mut at_once: Vec<Piece> = std::iter::from_fn(|| whole.next()).collect();
            at_once.extend(whole.finish());
            for piece in &at_once {
                let (Kind::Statement(piece) | Kind::Command(piece)) = &piece.kind;
                proptest::prop_assert!(text.contains(piece.as_str()));
            }
        }
    }
}
