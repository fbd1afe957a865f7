//! Sequences of an in-memory store, which has a single user.

use nacre_sql::{Error, Name, Result, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;

#[derive(Clone)]
struct Sequence {
    start: i64,
    increment: i64,
    min: i64,
    max: i64,
    cycle: bool,
    next: Option<i64>,
    previous: Option<i64>,
}

/// Sequences by their paths.
#[derive(Default)]
pub(crate) struct MemorySequences(RefCell<BTreeMap<String, Sequence>>);

fn missing(path: &str) -> Error {
    Error::new(19106, format!("Sequence not found: {path}"))
}

impl MemorySequences {
    /// Returns the rows of the catalog.
    pub fn rows(&self) -> Vec<(Name, Value)> {
        let row = |(path, sequence): (&String, &Sequence)| {
            let fields = [
                ("path", Value::from(path.as_str())),
                ("start", Value::Int(sequence.start)),
                ("increment", Value::Int(sequence.increment)),
                ("cycle", Value::Bool(sequence.cycle)),
            ];
            (Name::from(path.as_str()), Value::object(fields))
        };
        self.0.borrow().iter().map(row).collect()
    }

    /// Executes a statement about a sequence.
    pub fn administer(&self, request: &Value) -> Result<Value> {
        let text = |name: &str| request.field(name).as_str().unwrap_or_default().to_owned();
        let path = format!("{}.{}.{}", text("bucket"), text("scope"), text("name"));
        let options = request.field("options");
        let number = |name: &str| options.field(name).as_i64();
        let mut all = self.0.borrow_mut();
        match text("do").as_str() {
            "create_sequence" => {
                if all.contains_key(&path) {
                    return Err(Error::new(19108, format!("Sequence already exists: {path}")));
                }
                let increment = number("increment").unwrap_or(1);
                let (min, max) =
                    (number("min").unwrap_or(i64::MIN), number("max").unwrap_or(i64::MAX));
                let first = match (increment > 0, number("min"), number("max")) {
                    (true, Some(min), _) => min,
                    (false, _, Some(max)) => max,
                    _ => 0,
                };
                let start = number("start").unwrap_or(first);
                let cycle = options.field("cycle").truth();
                let (next, previous) = (Some(start), None);
                let new = Sequence { start, increment, min, max, cycle, next, previous };
                all.insert(path, new);
            }
            "alter_sequence" => {
                let sequence = all.get_mut(&path).ok_or_else(|| missing(&path))?;
                sequence.increment = number("increment").unwrap_or(sequence.increment);
                sequence.min = number("min").unwrap_or(sequence.min);
                sequence.max = number("max").unwrap_or(sequence.max);
                if let Value::Bool(cycle) = options.field("cycle") {
                    sequence.cycle = cycle;
                }
                if options.field("restart").truth() {
                    sequence.start = number("restart_with").unwrap_or(sequence.start);
                    sequence.next = Some(sequence.start);
                }
            }
            "drop_sequence" => {
                all.remove(&path).ok_or_else(|| missing(&path))?;
            }
            "next_value" => {
                let sequence = all.get_mut(&path).ok_or_else(|| missing(&path))?;
                let exhausted =
                    || Error::new(19111, format!("Sequence '{path}' has been exhausted"));
                let value = sequence.next.ok_or_else(exhausted)?;
                let next = value.checked_add(sequence.increment);
                let next = next.filter(|next| (sequence.min..=sequence.max).contains(next));
                let again = if sequence.increment > 0 { sequence.min } else { sequence.max };
                sequence.next = next.or(sequence.cycle.then_some(again));
                sequence.previous = Some(value);
                return Ok(Value::Int(value));
            }
            "previous_value" => {
                let sequence = all.get(&path).ok_or_else(|| missing(&path))?;
                return Ok(sequence.previous.map_or(Value::Null, Value::Int));
            }
            "curl" => return Err(Error::new(5010, "CURL: no URL is allowed")),
            _ => return Err(Error::new(1001, "this statement is not supported")),
        }
        Ok(Value::Null)
    }
}
