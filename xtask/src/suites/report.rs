//! What came of a suite.

use serde::{Deserialize, Serialize};

/// What came of one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Passed,
    /// With what the test said, in a line.
    Failed(String),
    /// With why it was not run, in a line.
    Skipped(String),
}

/// One test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Test {
    pub name: String,
    pub outcome: Outcome,
}

/// All tests of a suite. Runs by themselves leave theirs in a file, from which the page can be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// As the table calls it.
    pub title: String,
    /// What was installed.
    pub version: String,
    /// How to run it again.
    pub command: String,
    /// How many nodes it ran against.
    pub nodes: usize,
    /// What is to be known about results that did not come of one run of the whole suite.
    pub remarks: Vec<String>,
    /// Whether its failures are failures of this project's tests.
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

    /// One line.
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

/// Why tests fail or are skipped: a test's name, or the beginning of some with a star, and a few words. The first that fits
/// is taken.
pub(super) type Reasons = &'static [(&'static str, &'static str)];

/// Whether a name is meant.
pub(super) fn means(names: &str, name: &str) -> bool {
    names.strip_suffix('*').map_or(names == name, |beginning| name.starts_with(beginning))
}

/// Puts the reason in the place of what the test said, where one is known; that a test needs what does not exist yet
/// cannot be seen from its message.
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
    fn a_known_reason_replaces_what_a_failed_test_said() {
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
