//! Functions on texts.

/// Maximum characters of a compared text: the time grows with the product of both lengths.
pub const COMPARED_CHARACTERS_MAX: usize = 1000;

/// Returns a title in the form of a part of an address: letters and digits in lower case, `-` in place
/// of everything between them.
pub fn slug(title: &str) -> String {
    let words = title.split(|character: char| !character.is_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    words.join("-")
}

/// Returns the number of characters to insert, delete or replace to turn one text into the other.
///
/// # Errors
/// Fails if a text is longer than [`COMPARED_CHARACTERS_MAX`].
pub fn levenshtein(one: &str, other: &str) -> Result<usize, String> {
    let is_long = |text: &str| text.chars().nth(COMPARED_CHARACTERS_MAX).is_some();
    match is_long(one) || is_long(other) {
        true => Err(format!("texts of up to {COMPARED_CHARACTERS_MAX} characters are compared")),
        false => Ok(strsim::levenshtein(one, other)),
    }
}
