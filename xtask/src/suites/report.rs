//! The results of a suite.

use serde::{Deserialize, Serialize};

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Passed,
    /// The test's message, in one line.
    Failed(String),
    /// The reason why it was skipped, in one line.
    Skipped(String),
}

/// One test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Test {
    pub name: String,
    pub outcome: Outcome,
}

/// The results of a suite. A run of a single suite stores them in a file, from which the page can be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// The title in the table.
    pub title: String,
    /// The installed version.
    pub version: String,
    /// The command to run it again.
    pub command: String,
    /// The number of nodes it ran against.
    pub nodes: usize,
    /// Remarks about results that are not from one run of the whole suite.
    pub remarks: Vec<String>,
    /// True if its failures are failures of this project's tests.
    pub is_ours: bool,
    pub tests: Vec<Test>,
}

impl Report {
    fn count(&self, wanted: impl Fn(&Outcome) -> bool) -> usize {
        self.tests.iter().filter(|test| wanted(&test.outcome)).count()
    }

    pub fn passed(&self) -> usize {
        self.count(|outcome| *outcome == Outcome::Passed)
    }

    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    pub fn skipped(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Skipped(_)))
    }

    /// Returns a one-line summary.
    pub fn summary(&self) -> String {
        format!(
            "{}, nodes: {}: {} passed, {} failed, {} skipped",
            self.title,
            self.nodes,
            self.passed(),
            self.failed(),
            self.skipped()
        )
    }
}

/// Reasons why tests fail or are skipped: a test's name, or a prefix with a star, and a few words. The first match is used.
pub(super) type Reasons = &'static [(&'static str, &'static str)];

/// Returns true if `names` matches a name.
pub(super) fn means(names: &str, name: &str) -> bool {
    names.strip_suffix('*').map_or(names == name, |beginning| name.starts_with(beginning))
}

/// Replaces the messages of tests by known reasons. The message of a test does not show that the test needs a missing
/// feature.
pub(super) fn explain(tests: &mut [Test], reasons: Reasons) {
    for test in tests {
        let known = reasons.iter().find(|(names, _)| means(names, &test.name));
        if let (Some((_, reason)), Outcome::Failed(said) | Outcome::Skipped(said)) =
            (known, &mut test.outcome)
        {
            *said = (*reason).to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_reason_replaces_the_message_of_a_failed_test() {
        let test = |name: &str, outcome: Outcome| Test { name: name.into(), outcome };
        let mut tests = [
            test("query::basic", Outcome::Failed("timeout".into())),
            test("query::other", Outcome::Passed),
            test("kv::get", Outcome::Failed("1 != 2".into())),
        ];
        explain(&mut tests, &[("query::*", "no query service yet"), ("kv", "none")]);
        assert_eq!(tests[0].outcome, Outcome::Failed("no query service yet".into()));
        assert_eq!(tests[1].outcome, Outcome::Passed);
        assert_eq!(tests[2].outcome, Outcome::Failed("1 != 2".into()));
    }
}
