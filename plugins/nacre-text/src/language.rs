//! Language rules: normalizers, articles, stop words and stemmers.

use frostem::Algorithm;
use unicode_normalization::UnicodeNormalization;

/// Normalizes the spellings of a language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalizer {
    /// Arabic: forms of Alef, Yeh and Teh Marbuta, without vowel signs.
    Arabic,
    /// Persian: Arabic forms of Yeh, Keheh and Heh.
    Persian,
    /// German: umlauts and their transcription.
    German,
    /// Spanish: acute accents.
    Spanish,
    /// The scripts of India: one code point for each letter.
    Indic,
    /// Hindi: spellings with and without Nukta, long and short vowels.
    Hindi,
    /// Sorani Kurdish: forms of Yeh, Kaf and Heh.
    Sorani,
    /// Croatian: Latin letters with tone marks.
    Croatian,
}

impl Normalizer {
    /// Returns the word in the spelling that is indexed.
    pub fn apply(self, term: &str) -> String {
        match self {
            Normalizer::Arabic => term
                .chars()
                .filter(|c| !matches!(c, '\u{0640}' | '\u{064B}'..='\u{0652}'))
                .map(|c| match c {
                    '\u{0622}' | '\u{0623}' | '\u{0625}' => '\u{0627}',
                    '\u{0649}' => '\u{064A}',
                    '\u{0629}' => '\u{0647}',
                    c => c,
                })
                .collect(),
            Normalizer::Persian => term
                .chars()
                .filter(|c| *c != '\u{0654}')
                .map(|c| match c {
                    '\u{06CC}' | '\u{06D2}' => '\u{064A}',
                    '\u{06A9}' => '\u{0643}',
                    '\u{06C0}' | '\u{06C1}' => '\u{0647}',
                    c => c,
                })
                .collect(),
            Normalizer::German => german(term),
            Normalizer::Spanish => term
                .chars()
                .map(|c| match c {
                    'á' | 'à' | 'â' | 'ä' => 'a',
                    'é' | 'è' | 'ê' | 'ë' => 'e',
                    'í' | 'ì' | 'î' | 'ï' => 'i',
                    'ó' | 'ò' | 'ô' | 'ö' => 'o',
                    'ú' | 'ù' | 'û' | 'ü' => 'u',
                    c => c,
                })
                .collect(),
            Normalizer::Indic => {
                term.nfc().filter(|c| !matches!(c, '\u{200C}' | '\u{200D}')).collect()
            }
            Normalizer::Hindi => hindi(term),
            Normalizer::Sorani => sorani(term),
            Normalizer::Croatian => term
                .nfd()
                .filter(|c| {
                    !matches!(c, '\u{0300}' | '\u{0301}' | '\u{0304}' | '\u{030F}' | '\u{0311}')
                })
                .nfc()
                .collect(),
        }
    }
}

fn german(term: &str) -> String {
    #[derive(PartialEq)]
    enum State {
        Normal,
        Vowel,
        Umlaut,
    }
    let mut output = String::with_capacity(term.len());
    let mut state = State::Normal;
    for character in term.chars() {
        state = match character {
            'a' | 'o' => {
                output.push(character);
                State::Umlaut
            }
            'u' => {
                output.push('u');
                if state == State::Normal { State::Umlaut } else { State::Vowel }
            }
            'e' => {
                if state != State::Umlaut {
                    output.push('e');
                }
                State::Vowel
            }
            'i' | 'q' | 'y' => {
                output.push(character);
                State::Vowel
            }
            'ä' | 'ö' | 'ü' => {
                output.push(match character {
                    'ä' => 'a',
                    'ö' => 'o',
                    _ => 'u',
                });
                State::Vowel
            }
            'ß' => {
                output.push_str("ss");
                State::Normal
            }
            _ => {
                output.push(character);
                State::Normal
            }
        };
    }
    output
}

/// Normalizes Kurdish: a final Heh is the vowel Ae, Heh with two eyes is Heh, and a first Reh is a trill.
fn sorani(term: &str) -> String {
    let mut output = String::with_capacity(term.len());
    let mut characters = term.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied();
        match character {
            '\u{064A}' | '\u{0649}' => output.push('\u{06CC}'),
            '\u{0643}' => output.push('\u{06A9}'),
            '\u{0629}' => output.push('\u{06D5}'),
            // A zero-width non-joiner ends a word, too.
            '\u{0647}' if next.is_none_or(|next| next == '\u{200C}') => output.push('\u{06D5}'),
            '\u{06BE}' => output.push('\u{0647}'),
            '\u{0631}' if output.is_empty() => output.push('\u{0695}'),
            '\u{0692}' => output.push('\u{0695}'),
            // Tatweel, vowel signs, and characters that only control how others are joined or directed.
            '\u{0640}' | '\u{064B}'..='\u{0652}' | '\u{200B}'..='\u{200F}' | '\u{00AD}' => {}
            '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2064}' | '\u{FEFF}' => {}
            character => output.push(character),
        }
    }
    output
}

fn hindi(term: &str) -> String {
    let mut output = String::with_capacity(term.len());
    let mut characters = term.nfd().peekable();
    while let Some(character) = characters.next() {
        match character {
            // An n without a vowel is the dot above.
            '\u{0928}' if characters.peek() == Some(&'\u{094D}') => output.push('\u{0902}'),
            // Nukta, the Virama of a final letter, and joiners.
            '\u{093C}' | '\u{200C}' | '\u{200D}' | '\u{094D}' => {}
            '\u{0901}' => output.push('\u{0902}'),
            '\u{0945}' | '\u{0946}' => output.push('\u{0947}'),
            '\u{0949}' | '\u{094A}' => output.push('\u{094B}'),
            '\u{090D}' | '\u{090E}' => output.push('\u{090F}'),
            '\u{0911}' | '\u{0912}' => output.push('\u{0913}'),
            '\u{0972}' => output.push('\u{0905}'),
            '\u{0906}' => output.push('\u{0905}'),
            '\u{0908}' => output.push('\u{0907}'),
            '\u{090A}' => output.push('\u{0909}'),
            '\u{0960}' => output.push('\u{090B}'),
            '\u{0961}' => output.push('\u{090C}'),
            '\u{0910}' => output.push('\u{090F}'),
            '\u{0914}' => output.push('\u{0913}'),
            '\u{0940}' => output.push('\u{093F}'),
            '\u{0942}' => output.push('\u{0941}'),
            '\u{0944}' => output.push('\u{0943}'),
            '\u{0963}' => output.push('\u{0962}'),
            '\u{0948}' => output.push('\u{0947}'),
            '\u{094C}' => output.push('\u{094B}'),
            character => output.push(character),
        }
    }
    output
}

/// Converts full-width ASCII and half-width Katakana to their usual forms.
pub fn width(term: &str) -> String {
    if term.is_ascii() {
        return term.to_owned();
    }
    let mut output = String::with_capacity(term.len());
    let mut kana = String::new();
    for character in term.chars() {
        if ('\u{FF65}'..='\u{FF9F}').contains(&character) {
            kana.push(character);
            continue;
        }
        output.extend(kana.nfkc());
        kana.clear();
        match u32::from(character) {
            code @ 0xFF01..=0xFF5E => output.extend(char::from_u32(code - 0xFEE0)),
            _ => output.push(character),
        }
    }
    output.extend(kana.nfkc());
    output
}

/// Returns the stop words of a language: from Snowball if it has a list, otherwise from stopwords-iso.
pub fn stop_words(language: &str) -> Option<Vec<&'static str>> {
    macro_rules! lists {
        ($($language:literal)*) => {
            match language {
                $($language => include_str!(concat!("stop/", $language, ".txt")),)*
                "ar" | "bg" | "ca" | "cs" | "el" | "eu" | "fa" | "ga" | "gl" | "hi" | "hr" | "hy" | "id"
                | "pl" | "ro" | "tr" => return stop_words::lookup(language).map(<[_]>::to_vec),
                _ => return None,
            }
        };
    }
    let list = lists!("da" "de" "en" "es" "fi" "fr" "hu" "it" "nl" "no" "pt" "ru" "sv");
    Some(list.lines().collect())
}

/// Returns the articles that a language joins to the next word with an apostrophe.
pub fn articles(language: &str) -> Option<&'static [&'static str]> {
    Some(match language {
        "ca" => &["d", "l", "m", "n", "s", "t"],
        "fr" => {
            &["l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu"]
        }
        "ga" => &["d", "m", "b"],
        "it" => &[
            "c", "l", "all", "dall", "dell", "nell", "sull", "coll", "pell", "gl", "agl", "dagl",
            "degl", "negl", "sugl", "un", "m", "t", "s", "v", "d",
        ],
        _ => return None,
    })
}

/// Returns the stemmer of a language, by its code or name.
pub fn stemmer(language: &str) -> Option<Algorithm> {
    Some(match language {
        "ar" | "arabic" => Algorithm::Arabic,
        "ca" | "catalan" => Algorithm::Catalan,
        "cs" | "czech" => Algorithm::Czech,
        "da" | "danish" => Algorithm::Danish,
        "de" | "german" => Algorithm::German,
        "el" | "greek" => Algorithm::Greek,
        "en" | "english" => Algorithm::English,
        "es" | "spanish" => Algorithm::Spanish,
        "eu" | "basque" => Algorithm::Basque,
        "fa" | "persian" => Algorithm::Persian,
        "fi" | "finnish" => Algorithm::Finnish,
        "fr" | "french" => Algorithm::French,
        "ga" | "irish" => Algorithm::Irish,
        "hi" | "hindi" => Algorithm::Hindi,
        "hu" | "hungarian" => Algorithm::Hungarian,
        "hy" | "armenian" => Algorithm::Armenian,
        "id" | "indonesian" => Algorithm::Indonesian,
        "it" | "italian" => Algorithm::Italian,
        "nl" | "dutch" => Algorithm::Dutch,
        "no" | "norwegian" => Algorithm::Norwegian,
        "pl" | "polish" => Algorithm::Polish,
        "porter" => Algorithm::Porter,
        "pt" | "portuguese" => Algorithm::Portuguese,
        "ro" | "romanian" => Algorithm::Romanian,
        "ru" | "russian" => Algorithm::Russian,
        "sv" | "swedish" => Algorithm::Swedish,
        "tr" | "turkish" => Algorithm::Turkish,
        _ => return None,
    })
}
