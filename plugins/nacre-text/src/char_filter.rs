//! Char filters: change the text before it is split into tokens.

use regex_automata::meta::Regex;
use regex_automata::util::captures::Captures;

/// A filter of characters.
#[derive(Debug)]
pub enum CharFilter {
    /// Replaces accented letters by ASCII letters.
    AsciiFolding,
    /// Replaces matches; `$1` in the replacement is a group.
    Regexp(Regex, String),
}

impl CharFilter {
    /// Returns the filtered text.
    pub fn apply(&self, text: &str) -> String {
        match self {
            CharFilter::AsciiFolding => fold(text),
            CharFilter::Regexp(regex, replacement) => replace(regex, text, replacement),
        }
    }
}

fn replace(regex: &Regex, text: &str, replacement: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut end = 0;
    let all: Vec<Captures> = regex.captures_iter(text).collect();
    for captures in all {
        let Some(whole) = captures.get_match() else { continue };
        output.push_str(&text[end..whole.start()]);
        captures.interpolate_string_into(text, replacement, &mut output);
        end = whole.end();
    }
    output.push_str(&text[end..]);
    output
}

/// Replaces characters by similar ASCII letters.
fn fold(text: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    let mut output = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() {
            output.push(character);
            continue;
        }
        let special = match character {
            'ß' => "ss",
            'ẞ' => "SS",
            'Æ' => "AE",
            'æ' => "ae",
            'Œ' => "OE",
            'œ' => "oe",
            'Ø' => "O",
            'ø' => "o",
            'Đ' | 'Ð' => "D",
            'đ' | 'ð' => "d",
            'Ł' => "L",
            'ł' => "l",
            'Þ' => "TH",
            'þ' => "th",
            'ı' => "i",
            'Ħ' => "H",
            'ħ' => "h",
            'Ŧ' => "T",
            'ŧ' => "t",
            'ĸ' => "q",
            'ŋ' => "n",
            'Ŋ' => "N",
            '‘' | '’' | '‚' | '‛' | '′' => "'",
            '“' | '”' | '„' | '″' | '«' | '»' => "\"",
            '‐' | '‑' | '‒' | '–' | '—' => "-",
            _ => "",
        };
        if !special.is_empty() {
            output.push_str(special);
            continue;
        }
        let folded: String = character.nfkd().filter(char::is_ascii).collect();
        if folded.is_empty() {
            output.push(character);
        } else {
            output.push_str(&folded);
        }
    }
    output
}
