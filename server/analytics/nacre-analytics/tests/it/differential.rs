//! Random queries over random documents, in which every field can have every kind of value: both ways give the same rows.

use crate::world::{Answer, World, normal};
use nacre_sql::Value;

/// Worlds, and queries in each. `NACRE_ANALYTICS_WORLDS` makes it longer.
const WORLDS: u64 = 6;
const QUERIES: usize = 60;

struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    fn scalar(&mut self, kinds: usize) -> Value {
        match self.below(kinds) {
            0 => Value::Int(self.below(5) as i64),
            1 => Value::Missing,
            2 => Value::Null,
            3 => Value::Float(self.below(4) as f64 + 0.5),
            4 => Value::string(self.of(&["a", "b", "1", ""])),
            5 => Value::Bool(self.below(2) == 0),
            6 => Value::Int(9_007_199_254_740_993),
            _ => Value::array((0..self.below(3)).map(|_| self.scalar(5)).collect()),
        }
    }

    /// Fields of a world have one kind or many, as `shape` says.
    fn document(&mut self, shape: [usize; 4]) -> Value {
        let element = |random: &mut Random| {
            Value::object([("x", random.scalar(shape[2])), ("y", random.scalar(shape[3]))])
        };
        let list = (0..self.below(3)).map(|_| element(self)).collect();
        Value::object([
            ("a", self.scalar(shape[0])),
            ("b", self.scalar(shape[1])),
            ("c", element(self)),
            ("l", Value::array(list)),
        ])
    }

    fn field(&mut self, names: &[&str]) -> String {
        let name = self.below(names.len());
        let (variable, is_element) = (names[name], names[name] == "l");
        let path = if is_element {
            self.of(&["x", "y", "x"])
        } else {
            self.of(&["a", "b", "c.x", "c.y", "d"])
        };
        format!("{variable}.{path}")
    }

    fn expr(&mut self, names: &[&str], depth: usize) -> String {
        if depth == 0 || self.below(3) == 0 {
            return match self.below(4) {
                0 => self.of(&["1", "2.5", "'a'", "NULL", "TRUE", "0"]).to_owned(),
                _ => self.field(names),
            };
        }
        let (a, b) = (self.expr(names, depth - 1), self.expr(names, depth - 1));
        match self.below(7) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} * {b})"),
            2 => format!("({a} / {b})"),
            3 => format!("({a} - {b})"),
            4 => format!("(CASE WHEN {} THEN {a} ELSE {b} END)", self.condition(names, depth - 1)),
            5 => format!("({a} % {b})"),
            _ => format!("SUBSTR1({a}, 1, 1)"),
        }
    }

    fn condition(&mut self, names: &[&str], depth: usize) -> String {
        let (a, b) = (self.expr(names, depth.min(1)), self.expr(names, depth.min(1)));
        match self.below(if depth == 0 { 7 } else { 10 }) {
            0 => format!("{a} = {b}"),
            1 => format!("{a} < {b}"),
            2 => format!("{a} >= {b}"),
            3 => format!("{a} IS NULL"),
            4 => format!("{a} IS MISSING"),
            5 => format!("{a} IS NOT UNKNOWN"),
            6 => format!("{a} IN [1, 'a', 2]"),
            7 => format!(
                "({} AND {})",
                self.condition(names, depth - 1),
                self.condition(names, depth - 1)
            ),
            8 => format!(
                "({} OR {})",
                self.condition(names, depth - 1),
                self.condition(names, depth - 1)
            ),
            _ => format!("NOT ({})", self.condition(names, depth - 1)),
        }
    }

    fn query(&mut self) -> String {
        let (from, names): (&str, &[&str]) = match self.below(5) {
            0 => ("docs t, t.l l", &["t", "l"]),
            1 => ("docs t JOIN more u ON t.a = u.a", &["t", "u"]),
            2 => ("docs t LEFT JOIN more u ON t.a = u.b", &["t", "u"]),
            _ => ("docs t", &["t"]),
        };
        let filter = match self.below(3) {
            0 => String::new(),
            _ => format!(" WHERE {}", self.condition(names, 2)),
        };
        match self.below(4) {
            0 => {
                let (key, value) = (self.field(names), self.field(names));
                let aggregate = self.of(&["COUNT", "SUM", "MIN", "MAX", "AVG"]);
                format!(
                    "SELECT {key} AS k, {aggregate}({value}) AS v, COUNT(*) AS n FROM {from}{filter} GROUP BY {key}"
                )
            }
            1 => format!("SELECT DISTINCT {} AS k FROM {from}{filter}", self.expr(names, 1)),
            _ => {
                let (a, b) = (self.expr(names, 2), self.expr(names, 1));
                format!("SELECT {a} AS p, {b} AS q FROM {from}{filter}")
            }
        }
    }
}

#[test]
fn random_queries_over_random_documents_have_the_same_rows_both_ways() {
    let worlds =
        std::env::var("NACRE_ANALYTICS_WORLDS").map_or(WORLDS, |count| count.parse().unwrap());
    let (mut planned, mut asked) = (0, 0);
    for seed in 0..worlds {
        let mut random = Random(seed);
        // From one kind with MISSING to all kinds.
        let shape = [0; 4].map(|_: usize| 1 + random.below(8));
        let documents = |random: &mut Random, count: usize| -> Vec<Value> {
            (0..count).map(|_| random.document(shape)).collect()
        };
        let world = World::new(&[
            ("docs", documents(&mut random, 25)),
            ("more", documents(&mut random, 12)),
        ]);
        for _ in 0..QUERIES {
            let query = random.query();
            asked += 1;
            let rows =
                world.rows(&query).unwrap_or_else(|error| panic!("seed {seed}: {query}: {error}"));
            match world.columns(&query) {
                Ok(Answer::Rows(columns)) => {
                    planned += 1;
                    assert_eq!(normal(&columns), normal(&rows), "seed {seed}: {query}");
                }
                Ok(Answer::NoPlan(_)) => {}
                Err(error) => panic!("seed {seed}: {query}: {error}"),
            }
        }
    }
    println!("{planned} of {asked} queries had a plan");
    assert!(planned * 2 > asked, "{planned} of {asked} queries had a plan");
}
