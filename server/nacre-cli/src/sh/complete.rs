//! Completion of words.

use super::command::COMMANDS;
use super::settings::NAMES;
use std::collections::BTreeSet;

/// Keywords of the language for completion.
const KEYWORDS: &str = "ADVISE ALL ALTER AND ANY ARRAY AS ASC BETWEEN BUILD BY CASE COLLECTION CREATE DELETE DESC \
    DISTINCT DROP ELSE END EVERY EXCEPT EXCLUDE EXECUTE EXISTS EXPLAIN FALSE FIRST FOR FROM FUNCTION GROUP HAVING IF IN \
    INCLUDE INDEX INFER INNER INSERT INTERSECT INTO IS JOIN KEY KEYS LAST LATERAL LEFT LET LETTING LIKE LIMIT MATCHED \
    MERGE MISSING NEST NOT NULL NULLS OFFSET ON OPTIONS OR ORDER OUTER OVER PARTITION PREPARE PRIMARY RAW RETURNING RIGHT \
    SATISFIES SCOPE SELECT SET SOME THEN TRUE UNION UNNEST UNSET UPDATE UPSERT USE USING VALUE VALUED VALUES WHEN WHERE \
    WINDOW WITH WITHIN";

/// The page that lists all functions. A test compares it with the existing functions.
const PAGE: &str = include_str!("../../../../docs/reference/sqlpp.md");

/// All words that can be completed.
#[derive(Clone, Debug)]
pub struct Words {
    /// Keywords and functions, in upper case.
    language: BTreeSet<&'static str>,
    keyspaces: BTreeSet<String>,
}

/// A possible completion of the end of a line.
#[derive(Debug, PartialEq)]
pub struct Completion {
    /// The byte index at which the word begins.
    pub start: usize,
    /// The completed text.
    pub text: String,
    /// True if another word follows: a blank is appended.
    pub is_whole: bool,
}

impl Words {
    /// Returns the words of the language only.
    pub fn new() -> Words {
        let functions = PAGE.split("\n## Functions\n").nth(1).unwrap_or_default();
        let functions = functions.lines().filter(|line| line.starts_with("| "));
        let names = functions.flat_map(|line| line.split('`').skip(1).step_by(2));
        let language = KEYWORDS.split_whitespace().chain(names).collect();
        Words { language, keyspaces: BTreeSet::new() }
    }

    /// Sets the paths of keyspaces, such as `bucket.scope.collection`.
    pub fn set_keyspaces(&mut self, paths: &[String]) {
        let last = |path: &String| path.rsplit_once('.').map(|(_, name)| name.to_owned());
        let names = paths.iter().filter_map(last);
        self.keyspaces = paths.iter().cloned().chain(names).collect();
    }

    /// Returns completions of the word at the end of `line`, in lower case if the word is.
    pub fn complete(&self, line: &str) -> Vec<Completion> {
        let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '$' | '\\');
        let start = line.trim_end_matches(is_of_word).len();
        let word = &line[start..];
        let of = |texts: Vec<String>| {
            let completion = |text: String| {
                let is_whole = text.starts_with('\\');
                Completion { start, text, is_whole }
            };
            texts.into_iter().map(completion).collect()
        };
        let command = line.trim_start().strip_prefix('\\');
        if let Some(command) = command {
            return of(completed_command(command, word, self));
        }
        if word.is_empty() {
            return Vec::new();
        }
        let mut found = with_prefix(&self.keyspaces, word, quoted);
        let capitals = word.to_uppercase();
        let is_small = !word.contains(char::is_uppercase);
        let language = self.language.iter().filter(|name| name.starts_with(&capitals));
        found.extend(language.map(
            |name| {
                if is_small { name.to_lowercase() } else { (*name).to_owned() }
            },
        ));
        of(found)
    }
}

fn completed_command(command: &str, word: &str, words: &Words) -> Vec<String> {
    let with = |names: &[&str]| {
        let names = names.iter().filter(|name| name.starts_with(word));
        names.map(|name| (*name).to_owned()).collect()
    };
    match command.split_once(char::is_whitespace) {
        None => {
            let names = COMMANDS.iter().filter(|known| known.name.starts_with(command));
            names.map(|known| format!("\\{}", known.name)).collect()
        }
        Some(("set" | "unset", rest)) if rest.trim_start() == word => with(&NAMES),
        Some(("set", rest)) => match rest.split_whitespace().next() {
            Some("output") => with(&["table", "json", "jsonl", "csv"]),
            Some("consistency") => with(&["not_bounded", "request_plus"]),
            Some("timing" | "pretty" | "plan") => with(&["on", "off"]),
            _ => Vec::new(),
        },
        Some(("plan", _)) => with(&["on", "off"]),
        Some(("describe" | "use", _)) => with_prefix(&words.keyspaces, word, str::to_owned),
        Some(_) => Vec::new(),
    }
}

fn with_prefix(
    names: &BTreeSet<String>,
    prefix: &str,
    written: impl Fn(&str) -> String,
) -> Vec<String> {
    names.iter().filter(|name| name.starts_with(prefix)).map(|name| written(name)).collect()
}

/// Returns a path with back quotes around the parts that need them.
fn quoted(path: &str) -> String {
    let part = |part: &str| {
        let is_plain = part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_keyword = KEYWORDS.split(' ').any(|word| word.eq_ignore_ascii_case(part));
        let begins_well = !part.starts_with(|c: char| c.is_ascii_digit());
        if is_plain && begins_well && !is_keyword { part.to_owned() } else { format!("`{part}`") }
    };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Vec<String> {
        let mut words = Words::new();
        let paths = ["travel-sample", "travel-sample.inventory.airport", "shop.sales.order"];
        words.set_keyspaces(&paths.map(str::to_owned));
        let found = words.complete(line);
        found.into_iter().map(|found| format!("{}{}", &line[..found.start], found.text)).collect()
    }

    #[test]
    fn words_of_the_language_keep_their_case() {
        assert_eq!(completed("SEL"), ["SELECT"]);
        assert_eq!(
            completed("SELECT ( array_a"),
            ["SELECT ( array_agg", "SELECT ( array_append", "SELECT ( array_avg"]
        );
        assert_eq!(completed("SELECT "), [""; 0]);
        assert!(Words::new().language.len() > 300, "the page lists the functions");
    }

    #[test]
    fn keyspaces_get_the_quotes_they_need() {
        assert_eq!(completed("FROM travel-sample.i"), ["FROM `travel-sample`.inventory.airport"]);
        assert_eq!(completed("FROM airp"), ["FROM airport"]);
        assert_eq!(completed("FROM shop"), ["FROM shop.sales.`order`"]);
        assert_eq!(completed("\\describe shop"), ["\\describe shop.sales.order"]);
    }

    #[test]
    fn commands_and_settings_are_completed() {
        assert_eq!(completed("\\des"), ["\\describe"]);
        assert!(Words::new().complete("\\des").iter().all(|found| found.is_whole));
        assert!(Words::new().complete("SEL").iter().all(|found| !found.is_whole));
        assert_eq!(completed("  \\set out"), ["  \\set output"]);
        assert_eq!(completed("\\set output j"), ["\\set output json", "\\set output jsonl"]);
        assert_eq!(completed("\\plan o"), ["\\plan on", "\\plan off"]);
        assert_eq!(completed("\\echo SEL"), [""; 0]);
    }
}
