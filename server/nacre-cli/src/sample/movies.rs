//! The sample `movies`.

use super::{Documents, Numbers, rows};
use serde_json::json;

const MOVIES: &str = include_str!("../../samples/movies.csv");
/// Ratings per movie.
const RATINGS: u64 = 20;
const PEOPLE: [&str; 10] =
    ["ada", "bela", "chidi", "dana", "emil", "fatou", "goran", "hana", "ines", "juri"];

/// Returns the documents of all collections.
pub fn documents() -> Vec<Documents> {
    let mut numbers = Numbers(2);
    let (mut movies, mut ratings) = (Vec::new(), Vec::new());
    for row in rows(MOVIES) {
        let [title, year, director, genre, minutes, country] = row.as_slice() else {
            unreachable!("six columns")
        };
        let number = |text: &str| text.parse::<u64>().expect("a number in the table");
        let key = slug(title);
        let movie = json!({"title": title, "year": number(year), "director": director,
            "genre": genre, "minutes": number(minutes), "country": country});
        // Most people give a movie similar ratings.
        let usual = 2 + numbers.below(3);
        for index in 0..RATINGS {
            let stars = (usual + numbers.below(3)).clamp(1, 5);
            let rating = json!({"movie": format!("movie_{key}"), "by": numbers.one_of(&PEOPLE),
                "stars": stars, "day": [2024, 1 + numbers.below(12), 1 + numbers.below(28)]});
            ratings.push((format!("rating_{key}_{index}"), rating));
        }
        movies.push((format!("movie_{key}"), movie));
    }
    vec![
        Documents { collection: "movie", documents: movies },
        Documents { collection: "rating", documents: ratings },
    ]
}

/// Returns a title in the form of a part of a key: lower-case letters and digits, with hyphens in
/// place of everything else.
fn slug(title: &str) -> String {
    let mut slug = String::new();
    for character in title.chars() {
        match character.is_ascii_alphanumeric() {
            true => slug.push(character.to_ascii_lowercase()),
            false if slug.is_empty() || slug.ends_with('-') => {}
            false => slug.push('-'),
        }
    }
    slug.trim_end_matches('-').to_owned()
}
