//! Splits a log into blocks.

use std::collections::HashMap;

/// The beginning of a line with the options of a run.
const COMMAND_LINE: &str = "Command line:";

/// One run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block<'a> {
    /// Options of the run.
    command: Option<&'a str>,
    /// Values by section and metric. If a metric occurs several times, as in time series, the last
    /// value.
    results: HashMap<(&'a str, &'a str), &'a str>,
}

/// Splits a log at lines that begin with `marker`.
pub fn blocks<'a>(log: &'a str, marker: &str) -> Vec<Block<'a>> {
    let mut blocks: Vec<Block<'a>> = Vec::new();
    // The options of the next run, if they come before the marker.
    let mut ahead = None;
    for line in log.lines().map(str::trim) {
        if line.starts_with(marker) {
            blocks.push(Block { command: ahead.take(), ..Block::default() });
        } else if let Some(command) = line.strip_prefix(COMMAND_LINE) {
            match blocks.last_mut() {
                Some(block) if block.command.is_none() && block.results.is_empty() => {
                    block.command = Some(command.trim());
                }
                _ => ahead = Some(command.trim()),
            }
        } else if let (Some(block), Some((section, metric, value))) =
            (blocks.last_mut(), result(line))
        {
            block.results.insert((section, metric), value);
        }
    }
    blocks
}

/// Parses `[SECTION], metric, value` into its three parts.
fn result(line: &str) -> Option<(&str, &str, &str)> {
    let (section, rest) = line.strip_prefix('[')?.split_once("],")?;
    let (metric, value) = rest.rsplit_once(',')?;
    Some((section, metric.trim(), value.trim()))
}

impl Block<'_> {
    /// Returns the value of `-name value`, or of `-p name=value`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let words: Vec<&str> = self.command?.split_whitespace().collect();
        words.windows(2).find_map(|pair| match pair {
            [option, value] if option.strip_prefix('-') == Some(name) => Some(*value),
            ["-p", property] => property.strip_prefix(name)?.strip_prefix('='),
            _ => None,
        })
    }

    /// Returns the value of a metric.
    pub fn result(&self, section: &str, metric: &str) -> Option<&str> {
        self.results.get(&(section, metric)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_belongs_to_the_run_that_follows_it_or_has_begun() {
        let before = "Command line: -threads 1 -t\nYCSB Client 0.17.0\n[READ], Operations, 5\n\
                      Command line: -threads 2 -t\nYCSB Client 0.17.0\n[READ], Operations, 6\n";
        let behind = "YCSB Client 0.1\nCommand line: -threads 1 -t\n[READ], Operations, 5\n\
                      YCSB Client 0.1\nCommand line: -threads 2 -t\n[READ], Operations, 6\n";
        for log in [before, behind] {
            let blocks = blocks(log, "YCSB Client ");
            let found: Vec<_> = blocks
                .iter()
                .map(|block| (block.parameter("threads"), block.result("READ", "Operations")))
                .collect();
            assert_eq!(found, [(Some("1"), Some("5")), (Some("2"), Some("6"))], "{log}");
        }
    }

    #[test]
    fn parameters_are_options_or_properties() {
        let log = "M\nCommand line: -db x -p db.user=ann -threads 21 -p tries=3 -t";
        let block = &blocks(log, "M")[0];
        assert_eq!(block.parameter("threads"), Some("21"));
        assert_eq!(block.parameter("tries"), Some("3"));
        assert_eq!(block.parameter("db.user"), Some("ann"));
        // A part of a name, the last word, and a missing option.
        assert_eq!(
            [block.parameter("user"), block.parameter("t"), block.parameter("y")],
            [None; 3]
        );
    }

    #[test]
    fn other_lines_and_those_before_the_first_run_are_ignored() {
        let log =
            "[READ], Operations, 1\nM\n[READ] broken\nUsing 1 shards\n[READ], Return=OK, 7\n[]";
        let blocks = blocks(log, "M");
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].results.len(), 1);
        assert_eq!(blocks[0].result("READ", "Return=OK"), Some("7"));
    }
}
