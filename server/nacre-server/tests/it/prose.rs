//! Words of the pages that people read first, and of help texts: habits that make a sentence be read twice are not in them.
//!
//! Section 7 of the house style lists the habits. A page is on the list below once it is free of them, and stays so.

use std::path::Path;

/// Pages without the habits, from the root of the repository.
const PAGES: [&str; 10] = [
    "README.md",
    "docs/operate/install.md",
    "docs/operate/production.md",
    "docs/operate/monitor.md",
    "docs/operate/upgrade.md",
    "docs/operate/troubleshoot.md",
    "docs/operate/slow-operations.md",
    "docs/guides/agents.md",
    "docs/guides/http-api.md",
    "docs/decisions/0064-commands-find-their-node.md",
];
/// The highest reading grade of a page (Flesch-Kincaid), in years of school.
const GRADE_MAX: f64 = 10.0;

/// A habit, and what to write.
const HABITS: [(&str, &str); 16] = [
    ("anew", "again"),
    ("passed over", "ignored"),
    ("passes over", "ignores"),
    ("is told", "receives, is sent"),
    ("are told", "receive, are sent"),
    ("stands in", "is in"),
    ("stands for", "means"),
    ("lies in", "is stored in"),
    ("lie in", "are stored in"),
    ("is none", "does not exist, is not a …"),
    ("is no index", "is not an index"),
    ("to be taken", "take"),
    ("whoever", "anyone who, the user who"),
    ("what is more", "also"),
    ("beside the", "next to the, in addition to the"),
    ("as long as it likes", "for any time"),
];

/// Beginnings of sentences whose subject is a clause without a noun.
const HEADLESS: [&str; 6] =
    ["What is ", "What has ", "What was ", "What it ", "Who is ", "Who has "];

/// Returns the sentences of a page: no code, no tables, no headings.
fn sentences(page: &str) -> Vec<String> {
    let mut text = String::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code || line.starts_with('#') || line.trim().is_empty() {
            text.push_str(". ");
            continue;
        }
        if !line.starts_with('|') {
            text.push_str(line.trim_start_matches(['-', '*', ' ']));
            text.push(' ');
        }
    }
    let ends = text.split_inclusive(['.', '?', '!', ':', ';']);
    let mut sentences = vec![String::new()];
    for piece in ends {
        let last = sentences.last_mut().expect("there is always one");
        last.push_str(piece);
        // A point within a name or a number ends nothing.
        if piece.ends_with(['.', '?', '!', ':', ';']) {
            sentences.push(String::new());
        }
    }
    sentences.into_iter().map(|text| text.trim().to_owned()).filter(|text| text.len() > 3).collect()
}

/// Returns the words of a sentence that are read aloud: no code.
fn words(sentence: &str) -> Vec<String> {
    let outside = sentence.split('`').step_by(2).collect::<Vec<_>>().join(" x ");
    let words =
        outside.split(|c: char| !c.is_alphabetic() && c != '\'').filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Counts the syllables of a word: groups of vowels, without a silent e at the end.
fn syllables(word: &str) -> usize {
    let is_vowel = |c: char| "aeiouy".contains(c);
    let mut count = 0;
    let mut was_vowel = false;
    for character in word.chars() {
        count += usize::from(is_vowel(character) && !was_vowel);
        was_vowel = is_vowel(character);
    }
    let is_silent = word.ends_with('e') && !word.ends_with("le") && count > 1;
    (count - usize::from(is_silent)).max(1)
}

/// Returns the reading grade of a page (Flesch-Kincaid).
fn grade(page: &str) -> f64 {
    let sentences: Vec<Vec<String>> = sentences(page)
        .iter()
        .map(|sentence| words(sentence))
        .filter(|words| words.len() > 2)
        .collect();
    let word_count: usize = sentences.iter().map(Vec::len).sum();
    let syllable_count: usize = sentences.iter().flatten().map(|word| syllables(word)).sum();
    let per_sentence = word_count as f64 / sentences.len().max(1) as f64;
    0.39 * per_sentence + 11.8 * syllable_count as f64 / word_count.max(1) as f64 - 15.59
}

/// Returns what is wrong with a text, each with its place.
fn habits(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for (habit, better) in HABITS {
            let at = lower.match_indices(habit).any(|(at, _)| {
                let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
                let before = lower[..at].chars().next_back();
                let after = lower[at + habit.len()..].chars().next();
                !is_letter(before) && !is_letter(after)
            });
            if at {
                found.push(format!("{name}:{}: {habit:?}: write {better:?}", number + 1));
            }
        }
    }
    for sentence in sentences(text) {
        if HEADLESS.iter().any(|start| sentence.starts_with(start)) && !sentence.ends_with('?') {
            found.push(format!("{name}: {sentence:?} has no noun as its subject"));
        }
    }
    found
}

#[test]
fn first_pages_are_free_of_the_habits_and_easy_to_read() {
    let root = Path::new("../..");
    let mut wrong = Vec::new();
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        wrong.extend(habits(page, &text));
        let grade = grade(&text);
        println!("{page}: reading grade {grade:.1}");
        if grade > GRADE_MAX {
            wrong.push(format!("{page}: reading grade {grade:.1}, at most {GRADE_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn help_texts_are_free_of_the_habits() {
    let help = "tests/it/snapshots/it__help__every_command_explains_itself.snap";
    let wrong = habits(help, &std::fs::read_to_string(help).unwrap());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_habits_are_found() {
    let page =
        "Start it anew. What is stored stays.\n\n```sh\nwhat is this anew\n```\nWhat is it?\n";
    let found = habits("page", page);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("page:1: \"anew\"") && found[2].contains("What is stored stays."));
    assert_eq!(["cat", "table", "name", "database"].map(syllables), [1, 2, 1, 3]);
    assert!(grade("The cat sat on the mat. The dog ran.") < 2.0);
    assert!(
        grade(
            "Comprehensive organizational interoperability necessitates considerable deliberation."
        ) > 20.0
    );
}
