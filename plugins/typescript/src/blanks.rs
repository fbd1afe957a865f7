//! Texts with parts blanked out.

use std::ops::Range;

/// The parts of a text that are to be blanked, in any order; they may overlap.
#[derive(Default)]
pub struct Blanks {
    parts: Vec<(Range<usize>, bool)>,
}

impl Blanks {
    /// This part is to be blank.
    pub fn add(&mut self, part: Range<usize>) {
        self.parts.push((part, false));
    }

    /// This part is to be blank, but for a semicolon at its beginning: without it, what stands before and what stands behind
    /// could be one statement.
    pub fn add_statement(&mut self, part: Range<usize>) {
        self.parts.push((part, true));
    }

    /// The text with blanks: a space for each character, and line breaks as they are.
    pub fn apply(mut self, source: &str) -> String {
        self.parts.sort_by_key(|(part, _)| (part.start, std::cmp::Reverse(part.end)));
        let mut out = String::with_capacity(source.len());
        let mut at = 0;
        for (part, is_statement) in self.parts {
            if part.end <= at {
                continue;
            }
            let start = part.start.max(at);
            out.push_str(&source[at..start]);
            let mut is_first = is_statement && start == part.start;
            for character in source[start..part.end].chars() {
                out.push(match character {
                    _ if std::mem::take(&mut is_first) => ';',
                    '\n' | '\r' | '\u{2028}' | '\u{2029}' => character,
                    _ => ' ',
                });
            }
            at = part.end;
        }
        out.push_str(&source[at..]);
        out
    }
}
