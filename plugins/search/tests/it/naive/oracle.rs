//! An evaluator that scans all tokens and values of a document.

use super::document::{DIMS, Document};
use serde_json::Value;

/// Returns the edit distance of two words: insertions, deletions, substitutions and transpositions.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let changed = usize::from(a[i - 1] != b[j - 1]);
                    let mut least = (rows[i - 1][j] + 1)
                        .min(rows[i][j - 1] + 1)
                        .min(rows[i - 1][j - 1] + changed);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        least = least.min(rows[i - 2][j - 2] + 1);
                    }
                    least
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

fn glob(pattern: &[char], word: &[char]) -> bool {
    match pattern.first() {
        None => word.is_empty(),
        Some('*') => (0..=word.len()).any(|at| glob(&pattern[1..], &word[at..])),
        Some(c) => {
            !word.is_empty() && (*c == '?' || *c == word[0]) && glob(&pattern[1..], &word[1..])
        }
    }
}

/// Returns the tokens of the standard analyzer. Two Chinese characters are two tokens; the words here include no stop words.
fn standard(text: &str) -> Vec<String> {
    text.split_whitespace()
        .flat_map(|word| match word {
            "日本" => vec!["日".to_owned(), "本".to_owned()],
            word => vec![word.to_lowercase()],
        })
        .collect()
}

/// Returns the tokens of a query's text.
fn analyzed(field: &str, text: &str) -> Vec<String> {
    if field == "tag" { vec![text.to_owned()] } else { standard(text) }
}

/// Returns the maximum number of edits; `auto` depends on the term.
fn fuzziness(query: &Value, term: &str) -> usize {
    match (&query["fuzziness"], term.chars().count()) {
        (Value::String(_), 0..=2) => 0,
        (Value::String(_), 3..=5) => 1,
        (Value::String(_), _) => 2,
        (count, _) => count.as_u64().unwrap_or(0) as usize,
    }
}

fn is_like(query: &Value, term: &str, other: &str) -> bool {
    let prefix = query["prefix_length"].as_u64().unwrap_or(0) as usize;
    let distance_max = fuzziness(query, term);
    let same = |(a, b): (char, char)| a == b;
    let starts = other.chars().count() >= prefix.min(term.chars().count())
        && term.chars().zip(other.chars()).take(prefix).all(same);
    // An exact comparison ignores the prefix.
    if distance_max == 0 { term == other } else { starts && distance(term, other) <= distance_max }
}

/// Returns the distance of two points on a sphere in metres.
fn metres(from: (f64, f64), to: (f64, f64)) -> f64 {
    let point = |(lon, lat): (f64, f64)| {
        let (lon, lat) = (lon.to_radians(), lat.to_radians());
        [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()]
    };
    let (a, b) = (point(from), point(to));
    let cosine: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    6_371_008.8 * cosine.clamp(-1.0, 1.0).acos()
}

/// Returns true if a line from a point to the north crosses the edges an odd number of times.
fn is_inside(points: &[(f64, f64)], (lon, lat): (f64, f64)) -> bool {
    let ends = points.iter().zip(points.iter().cycle().skip(1));
    let crossed = ends.filter(|((x1, y1), (x2, y2))| {
        (*x1 > lon) != (*x2 > lon) && y1 + (lon - x1) / (x2 - x1) * (y2 - y1) > lat
    });
    crossed.count() % 2 == 1
}

fn pair(value: &Value) -> (f64, f64) {
    (value[0].as_f64().unwrap(), value[1].as_f64().unwrap())
}

impl Document {
    /// Returns the values of a field as tokens.
    fn values(&self, field: &str) -> Vec<Vec<String>> {
        let texts = self.texts.iter().filter(|(name, _)| field == "_all" || **name == field);
        let mut values: Vec<Vec<String>> = texts
            .flat_map(|(_, values)| values.iter().map(|words| standard(&words.join(" "))))
            .collect();
        if field == "_all" {
            values.extend(self.flag.map(|flag| vec![if flag { "T" } else { "F" }.to_owned()]));
        }
        if field == "_all" || field == "tag" {
            values.extend(self.tags.iter().map(|tag| vec![tag.clone()]));
        }
        values
    }

    fn any_term(&self, field: &str, wanted: impl Fn(&str) -> bool) -> bool {
        self.values(field).iter().flatten().any(|term| wanted(term))
    }

    fn has_phrase(&self, query: &Value, field: &str, slots: &[Vec<String>]) -> bool {
        let suits = |term: &String, slot: &Vec<String>| {
            slot.iter().any(|wanted| is_like(query, wanted, term))
        };
        !slots.is_empty()
            && self.values(field).iter().any(|value| {
                value
                    .windows(slots.len())
                    .any(|window| window.iter().zip(slots).all(|(term, slot)| suits(term, slot)))
            })
    }

    /// Returns true if the document is a hit.
    pub fn matches(&self, query: &Value) -> bool {
        if let Some(stands_for) = query.get("as") {
            return self.matches(stands_for);
        }
        if let Some(parts) = query["conjuncts"].as_array() {
            return !parts.is_empty() && parts.iter().all(|part| self.matches(part));
        }
        if let Some(parts) = query["disjuncts"].as_array() {
            let min = query["min"].as_u64().unwrap_or(0).max(1) as usize;
            return parts.iter().filter(|part| self.matches(part)).count() >= min;
        }
        let (must, should) = (query.get("must"), query.get("should"));
        if must.is_some() || should.is_some() || query.get("must_not").is_some() {
            let needs_should =
                must.is_none() || should.is_some_and(|should| should["min"].as_u64() > Some(0));
            return must.is_none_or(|must| self.matches(must))
                && should.is_none_or(|should| !needs_should || self.matches(should))
                && !query.get("must_not").is_some_and(|not| self.matches(not))
                && query.get("filter").is_none_or(|filter| self.matches(filter));
        }
        let field = query["field"].as_str().unwrap_or("_all");
        self.has_terms(query, field).or_else(|| self.has_values(query, field)).unwrap_or_else(
            || {
                assert!(query.get("match_none").is_some(), "the oracle does not know {query}");
                false
            },
        )
    }

    /// Evaluates conditions on terms; `None` for any other query.
    fn has_terms(&self, query: &Value, field: &str) -> Option<bool> {
        let text = |name: &str| query[name].as_str();
        if let Some(words) = text("match") {
            let words = analyzed(field, words);
            let has = |word: &String| self.any_term(field, |term| is_like(query, word, term));
            return Some(if text("operator") == Some("and") {
                !words.is_empty() && words.iter().all(has)
            } else {
                words.iter().any(has)
            });
        }
        if let Some(words) = text("match_phrase") {
            let slots: Vec<Vec<String>> =
                analyzed(field, words).into_iter().map(|word| vec![word]).collect();
            return Some(self.has_phrase(query, field, &slots));
        }
        if let Some(slots) = query["terms"].as_array() {
            let terms = |slot: &Value| {
                let terms = slot.as_array().unwrap().iter();
                terms.map(|term| term.as_str().unwrap().to_owned()).collect()
            };
            let slots: Vec<Vec<String>> = slots.iter().map(terms).collect();
            return Some(self.has_phrase(query, field, &slots));
        }
        if let Some(term) = text("term") {
            return Some(self.any_term(field, |other| is_like(query, term, other)));
        }
        if let Some(prefix) = text("prefix") {
            return Some(self.any_term(field, |term| term.starts_with(prefix)));
        }
        if let Some(pattern) = text("wildcard") {
            let pattern: Vec<char> = pattern.chars().collect();
            let found =
                self.any_term(field, |term| glob(&pattern, &term.chars().collect::<Vec<_>>()));
            return Some(found);
        }
        if let Some(number) = query["pattern"].as_u64() {
            return Some(super::PATTERNS.with_borrow(|patterns| {
                self.any_term(field, |term| patterns[number as usize].matches(term))
            }));
        }
        let (min, max) = (text("min"), text("max"));
        (min.is_some() || max.is_some()).then(|| {
            let flag = |name: &str| query[name].as_bool().unwrap();
            self.any_term(field, |term| {
                min.is_none_or(|min| term > min || flag("inclusive_min") && term == min)
                    && max.is_none_or(|max| term < max || flag("inclusive_max") && term == max)
            })
        })
    }

    /// Evaluates conditions on other values; `None` for any other query.
    fn has_values(&self, query: &Value, field: &str) -> Option<bool> {
        let flag = |name: &str, default: bool| query[name].as_bool().unwrap_or(default);
        let (min, max) = (query["min"].as_f64(), query["max"].as_f64());
        if min.is_some() || max.is_some() {
            let is_asked = field == "number" || field == "_all";
            return Some(
                is_asked
                    && self.numbers.iter().any(|number| {
                        let equal = flag("inclusive_min", true);
                        let low = min.is_none_or(|min| *number > min || equal && *number == min);
                        let equal = flag("inclusive_max", false);
                        low && max.is_none_or(|max| *number < max || equal && *number == max)
                    }),
            );
        }
        let (start, end) = (query["start_minutes"].as_i64(), query["end_minutes"].as_i64());
        if start.is_some() || end.is_some() {
            return Some(self.times.iter().any(|time| {
                let equal = flag("inclusive_start", true);
                let low = start.is_none_or(|start| *time > start || equal && *time == start);
                let equal = flag("inclusive_end", false);
                low && end.is_none_or(|end| *time < end || equal && *time == end)
            }));
        }
        if let Some(wanted) = query["bool"].as_bool() {
            return Some(self.flag == Some(wanted));
        }
        if let Some(ids) = query["ids"].as_array() {
            return Some(ids.iter().any(|id| *id == *self.id));
        }
        if let Some(network) = query["cidr"].as_str() {
            let (address, bits) = network.split_once('/').unwrap_or((network, "32"));
            let shift = 32 - bits.parse::<u32>().unwrap();
            let network = u32::from(address.parse::<std::net::Ipv4Addr>().unwrap());
            let top = |address: u32| u64::from(address) >> shift;
            return Some(self.address.is_some_and(|own| top(own) == top(network)));
        }
        self.has_place(query).or_else(|| query.get("match_all").map(|_| true))
    }

    fn has_place(&self, query: &Value) -> Option<bool> {
        if let Some(most) = query["metres"].as_f64() {
            // Only the first point of a document counts.
            return Some(self.places.first().is_some_and(|place| {
                let metres = metres(pair(&query["location"]), *place);
                // The Earth is not a sphere.
                assert!(
                    (metres / most - 1.0).abs() > 0.01,
                    "{query}: {place:?} is {metres} m away"
                );
                metres < most
            }));
        }
        if query.get("top_left").is_some() {
            let ((west, north), (east, south)) =
                (pair(&query["top_left"]), pair(&query["bottom_right"]));
            let to_the_east = |lon: f64| (lon - west).rem_euclid(360.0);
            return Some(self.places.iter().any(|(lon, lat)| {
                to_the_east(*lon) <= to_the_east(east) && *lat <= north && *lat >= south
            }));
        }
        if let Some(points) = query["polygon_points"].as_array() {
            let points: Vec<(f64, f64)> = points.iter().map(pair).collect();
            return Some(self.places.iter().any(|place| is_inside(&points, *place)));
        }
        let relation = query["geometry"]["relation"].as_str()?;
        let side = |at: usize| query["sides"][at].as_f64().unwrap();
        Some(self.area.is_some_and(|[west, south, east, north]| {
            let within = side(0) < west && side(1) < south && side(2) > east && side(3) > north;
            let contains = side(0) > west && side(1) > south && side(2) < east && side(3) < north;
            let intersects = side(0) < east && side(2) > west && side(1) < north && side(3) > south;
            match relation {
                "within" => within,
                "contains" => contains,
                "intersects" => intersects,
                _ => !intersects,
            }
        }))
    }

    /// Returns the nearness of the closest vector: more is nearer. `None` without a vector.
    pub fn nearness(&self, to: &[f64; DIMS], similarity: &str) -> Option<f64> {
        let dot =
            |a: &[f64; DIMS], b: &[f64; DIMS]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let nearness = |own: &[f64; DIMS]| match similarity {
            "dot_product" => dot(own, to),
            "cosine" => dot(own, to) / (dot(own, own) * dot(to, to)).sqrt(),
            _ => -own.iter().zip(to).map(|(a, b)| (a - b) * (a - b)).sum::<f64>(),
        };
        self.vectors.iter().map(nearness).max_by(f64::total_cmp)
    }
}
