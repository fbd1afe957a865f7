//! Errors of a statement: code, message, and position in the text.

use super::ask::Problem;
use super::text::printable;

/// Characters of a line that are shown before and after the position of an error.
const AROUND: usize = 60;

/// Describes a problem: one line with code and message. Two more lines follow if the position is known: the text, and
/// a caret below the column. One more follows if the code of a function has thrown: the exception.
pub fn describe(kind: &str, problem: &Problem, statement: &str) -> String {
    let mut text = format!("{kind} {}: {}\n", problem.code, printable(&problem.message));
    let number = |name: &str| {
        let number = problem.reason.get(name).and_then(serde_json::Value::as_u64);
        number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1))
    };
    if let (Some(line), Some(column)) = (number("line"), number("column"))
        && let Some(line) = statement.lines().nth(line)
        && column <= line.chars().count()
    {
        let first = column.saturating_sub(AROUND);
        let window = line.chars().skip(first).take(2 * AROUND);
        let shown: String = window.map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&format!("  {shown}\n  {}^\n", " ".repeat(column - first)));
    }
    if let Some(exception) = problem.reason["details"]["Exception"].as_str() {
        text.push_str(&format!("  {}\n", printable(exception)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn described(statement: &str, line: u64, column: u64) -> String {
        let reason = json!({"line": line, "column": column});
        let problem = Problem { code: 3000, message: "syntax error".into(), reason };
        describe("error", &problem, statement)
    }

    #[test]
    fn a_caret_is_below_the_column() {
        let expected = "error 3000: syntax error\n  \u{20}é FROM\n     ^\n";
        assert_eq!(described("SELECT 1 +\n\té FROM", 2, 4), expected);
    }

    #[test]
    fn exceptions_of_functions_are_shown() {
        let reason = json!({"details": {"Exception": "TypeError: no day"}});
        let problem = Problem { code: 10109, message: "Error executing".into(), reason };
        let expected = "error 10109: Error executing\n  TypeError: no day\n";
        assert_eq!(describe("error", &problem, "SELECT f(1)"), expected);
    }

    #[test]
    fn a_long_line_is_shown_around_the_error() {
        let text = described(&format!("{}x{}", "a".repeat(5000), "b".repeat(5000)), 1, 5001);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].len(), 2 + 2 * AROUND);
        assert_eq!(lines[1].find('x'), lines[2].find('^'));
    }

    #[test]
    fn a_position_outside_of_the_statement_is_not_shown() {
        for (line, column) in [(0, 1), (1, 0), (2, 1), (1, 9), (u64::MAX, u64::MAX)] {
            assert_eq!(described("SELECT", line, column), "error 3000: syntax error\n");
        }
    }
}
