//! Words of the pages, of help texts, and of messages in the code: habits that make a sentence be read twice are not in them.
//!
//! Section 7 of the house style lists the habits. Decisions keep the words of their day and are not checked.

use std::path::{Path, PathBuf};

/// The root of the repository.
const ROOT: &str = "../..";
/// Pages and folders of pages.
const PAGES: [&str; 12] = [
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "docs",
    "conformance/README.md",
    "examples",
    "server/README.md",
    "plugins/README.md",
    "sdk-js/README.md",
    "sdk-py/README.md",
];
/// The folder of pages that are not checked.
const DECISIONS: &str = "docs/decisions";
/// Folders of crates, whose messages are checked.
const CRATES: [&str; 2] = ["server", "plugins"];
/// Words of a page below which its grade says nothing.
const GRADED_WORDS_MIN: usize = 100;
/// The beginning of the unit tests of a file.
const UNIT_TESTS: &str = "#[cfg(test)]\nmod tests";
/// The highest reading grade of a page (Flesch-Kincaid), in years of school.
const GRADE_MAX: f64 = 10.0;

/// A habit, and what to write.
const HABITS: [(&str, &str); 18] = [
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
    ("is no name", "is not a name"),
    ("to be taken", "take"),
    ("whoever", "anyone who, the user who"),
    ("what is more", "also"),
    ("beside the", "next to the, in addition to the"),
    ("as long as it likes", "for any time"),
    ("was told", "received"),
    ("for want of", "without"),
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

/// Returns the reading grade of a page (Flesch-Kincaid) and its number of words.
fn grade(page: &str) -> (f64, usize) {
    let sentences: Vec<Vec<String>> = sentences(page)
        .iter()
        .map(|sentence| words(sentence))
        .filter(|words| words.len() > 2)
        .collect();
    let word_count: usize = sentences.iter().map(Vec::len).sum();
    let syllable_count: usize = sentences.iter().flatten().map(|word| syllables(word)).sum();
    let per_sentence = word_count as f64 / sentences.len().max(1) as f64;
    let per_word = syllable_count as f64 / word_count.max(1) as f64;
    (0.39 * per_sentence + 11.8 * per_word - 15.59, word_count)
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

/// Returns the files with an extension in a folder and those below it, or the file itself, in order.
fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    if path.is_file() {
        let is_wanted = path.extension().is_some_and(|found| found == extension);
        return if is_wanted { vec![path.to_owned()] } else { Vec::new() };
    }
    let is_built = |path: &Path| path.ends_with("node_modules") || path.ends_with("target");
    if !path.is_dir() || is_built(path) {
        return Vec::new();
    }
    let entries = std::fs::read_dir(path).unwrap();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.iter().flat_map(|entry| files(entry, extension)).collect()
}

/// Returns the literals of text in Rust code, each with its line, up to the unit tests.
fn literals(source: &str) -> Vec<(usize, &str)> {
    let (mut rest, mut line) = (source.split(UNIT_TESTS).next().unwrap_or_default(), 1);
    let mut found = Vec::new();
    while let Some(at) = rest.find(['"', '\'', '/', '\n']) {
        let (before, after) = rest.split_at(at);
        let bytes = match after.as_bytes()[0] {
            b'\n' => {
                line += 1;
                1
            }
            b'/' if after.starts_with("//") => after.find('\n').unwrap_or(after.len()),
            b'/' => 1,
            b'\'' => character_bytes(after),
            _ => {
                let (literal, bytes) = literal(before, after);
                found.push((line, literal));
                line += after[..bytes].matches('\n').count();
                bytes
            }
        };
        rest = &after[bytes..];
    }
    found
}

/// Returns the size of a character in quotes at the beginning of `after`; 1 if it is a lifetime.
fn character_bytes(after: &str) -> usize {
    let mut characters = after.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some(_)) => after[3..].find('\'').map_or(1, |at| at + 4),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// Returns the content of the literal at the beginning of `after`, and its size with its quotes. `before` ends with its prefix.
fn literal<'t>(before: &str, after: &'t str) -> (&'t str, usize) {
    let start = before.trim_end_matches('#');
    if start.ends_with('r') {
        let close = format!("\"{}", &before[start.len()..]);
        let end = after[1..].find(&close).map_or(after.len(), |at| at + 1);
        return (&after[1..end], (end + close.len()).min(after.len()));
    }
    let mut is_escaped = false;
    let end = after[1..].find(|character| {
        let is_end = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    });
    let end = end.map_or(after.len(), |at| at + 1);
    (&after[1..end], (end + 1).min(after.len()))
}

#[test]
fn pages_are_free_of_the_habits_and_easy_to_read() {
    let root = Path::new(ROOT);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in PAGES.iter().flat_map(|page| files(&root.join(page), "md")) {
        let page = path.strip_prefix(root).unwrap();
        if page.starts_with(DECISIONS) {
            continue;
        }
        let (page, text) = (page.display().to_string(), std::fs::read_to_string(&path).unwrap());
        count += 1;
        wrong.extend(habits(&page, &text));
        let (grade, words) = grade(&text);
        if words >= GRADED_WORDS_MIN {
            println!("{page}: reading grade {grade:.1}");
        }
        if words >= GRADED_WORDS_MIN && grade > GRADE_MAX {
            wrong.push(format!("{page}: reading grade {grade:.1}, at most {GRADE_MAX}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 90, "{count} pages are not all");
}

#[test]
fn the_contents_list_each_page_once() {
    let docs = Path::new(ROOT).join("docs");
    let contents = std::fs::read_to_string(docs.join("README.md")).unwrap();
    for path in files(&docs, "md") {
        let page = path.strip_prefix(&docs).unwrap();
        if page.starts_with("decisions") || page == Path::new("README.md") {
            continue;
        }
        let link = format!("]({})", page.display());
        assert_eq!(contents.matches(&link).count(), 1, "{link}");
    }
}

#[test]
fn messages_in_the_code_are_free_of_the_habits() {
    let root = Path::new(ROOT);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in CRATES.iter().flat_map(|folder| files(&root.join(folder), "rs")) {
        let is_source = path.components().any(|part| part.as_os_str() == "src");
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        if !is_source || is_test {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        for (line, literal) in literals(&source).into_iter().filter(|(_, text)| text.contains(' '))
        {
            count += 1;
            let name = format!("{}:{line}", path.display());
            wrong.extend(habits(&name, literal));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 3000, "{count} texts are not all");
}

#[test]
fn literals_differ_from_comments_and_characters() {
    let source = "// \"not this\"\nlet a = \"one \\\" 1\"; let b: &'static str = r#\"two \"2\"#; let c = '\"';\n\
                  let d = '\\''; let e = \"three\n3\"; f(\"4\");\n#[cfg(test)]\nmod tests { \"5\" }";
    let found = literals(source);
    let expected = [(2, "one \\\" 1"), (2, "two \"2"), (3, "three\n3"), (4, "4")];
    assert_eq!(found, expected);
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
    assert!(grade("The cat sat on the mat. The dog ran.").0 < 2.0);
    let long =
        "Comprehensive organizational interoperability necessitates considerable deliberation.";
    assert!(grade(long).0 > 20.0);
}
