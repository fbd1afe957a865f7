//! The predefined components of every index, by name.

use crate::char_filter::CharFilter;
use crate::dates::DateParser;
use crate::filter::{Filter, Form, Words};
use crate::language::{self, Normalizer};
use crate::registry::compile;
use crate::tokenizer::Tokenizer;
use frostem::Algorithm;
use std::sync::Arc;

/// The chain of an analyzer: char filters, a tokenizer, token filters.
pub type Chain = (&'static [&'static str], &'static str, &'static [&'static str]);

/// Returns the analyzer with that name.
pub fn analyzer(name: &str) -> Option<Chain> {
    let filters: &'static [&'static str] = match name {
        "standard" => &["to_lower", "stop_en"],
        "simple" => return Some((&[], "letter", &["to_lower"])),
        "keyword" => return Some((&[], "single", &[])),
        "web" => return Some((&[], "web", &["to_lower", "stop_en"])),
        "en" => &["possessive_en", "to_lower", "stop_en", "stemmer_porter"],
        "cjk" => &["cjk_width", "to_lower", "cjk_bigram"],
        "fr" => &["to_lower", "elision_fr", "stop_fr", "stemmer_fr_light"],
        "it" => &["to_lower", "elision_it", "stop_it", "stemmer_it_light"],
        "de" => &["to_lower", "stop_de", "normalize_de", "stemmer_de_light"],
        "es" => &["to_lower", "normalize_es", "stop_es", "stemmer_es_light"],
        "pt" => &["to_lower", "stop_pt", "stemmer_pt_light"],
        "nl" => &["to_lower", "stop_nl", "stemmer_nl_snowball"],
        "ru" => &["to_lower", "stop_ru", "stemmer_ru_snowball"],
        "sv" => &["to_lower", "stop_sv", "stemmer_sv_snowball"],
        "da" => &["to_lower", "stop_da", "stemmer_da_snowball"],
        "fi" => &["to_lower", "stop_fi", "stemmer_fi_snowball"],
        "no" => &["to_lower", "stop_no", "stemmer_no_snowball"],
        "hu" => &["to_lower", "stop_hu", "stemmer_hu_snowball"],
        "ro" => &["to_lower", "stop_ro", "stemmer_ro_snowball"],
        "pl" => &["to_lower", "stop_pl", "stemmer_pl"],
        "tr" => &["apostrophe", "to_lower", "stop_tr", "stemmer_tr_snowball"],
        "ar" => &["to_lower", "normalize_nfkc", "stop_ar", "normalize_ar", "stemmer_ar"],
        "fa" => {
            let filters = &["to_lower", "normalize_ar", "normalize_fa", "stop_fa"];
            return Some((&["zero_width_spaces"], "unicode", filters));
        }
        "hi" => &["to_lower", "normalize_in", "normalize_hi", "stop_hi", "stemmer_hi"],
        "ckb" => &["normalize_ckb", "to_lower"],
        "hr" => &["to_lower", "stop_hr", "suffix_transformation_hr"],
        _ => return None,
    };
    Some((&[], "unicode", filters))
}

/// Returns the char filter with that name.
pub fn char_filter(name: &str) -> Option<CharFilter> {
    // Tags, comments and declarations.
    const HTML: &str = r#"</?[!\w]+((\s+\w+(\s*=\s*(?:".*?"|'.*?'|[^'">\s]+))?)+\s*|\s*)/?>"#;
    let (regexp, replacement) = match name {
        "asciifolding" => return Some(CharFilter::AsciiFolding),
        "html" => (HTML, " "),
        "zero_width_spaces" => ("\u{200C}", " "),
        _ => return None,
    };
    Some(CharFilter::Regexp(compile(regexp).ok()?, replacement.into()))
}

/// Returns the tokenizer with that name.
pub fn tokenizer(name: &str) -> Option<Tokenizer> {
    const EMAIL: &str = r"(?:[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*@(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)";
    const URL: &str = r#"(?i)\b((?:[a-z][\w-]+:(?:/{1,3}|[a-z0-9%])|www\d{0,3}[.]|[a-z0-9.\-]+[.][a-z]{2,4}/)(?:[^\s()<>]+|\((?:[^\s()<>]+|(?:\([^\s()<>]+\)))*\))+(?:\((?:[^\s()<>]+|(?:\([^\s()<>]+\)))*\)|[^\s`!()\[\]{};:'".,<>?«»“”‘’]))"#;
    const HANDLE: &str = r"@([a-zA-Z0-9_]){1,15}";
    const TAG: &str = r"#([a-zA-Z0-9_])+";
    Some(match name {
        "unicode" => Tokenizer::Unicode,
        "letter" => Tokenizer::Letter,
        "whitespace" => Tokenizer::Whitespace,
        "single" => Tokenizer::Single,
        "web" => {
            let regex = compile(&format!("(?:{EMAIL})|(?:{URL})|(?:{HANDLE})|(?:{TAG})")).ok()?;
            Tokenizer::Exception(regex, Arc::new(Tokenizer::Unicode))
        }
        _ => return None,
    })
}

/// Returns the token filter with that name.
pub fn filter(name: &str) -> Option<Filter> {
    let plain = match name {
        "apostrophe" => Filter::Apostrophe,
        "camelCase" => Filter::CamelCase,
        "to_lower" => Filter::LowerCase,
        "reverse" => Filter::Reverse,
        "unique" => Filter::Unique,
        "possessive_en" => Filter::Possessive,
        "stemmer_porter" => Filter::Stem(Algorithm::Porter),
        "cjk_bigram" => Filter::CjkBigram(false),
        "cjk_width" => Filter::CjkWidth,
        "normalize_nfc" => Filter::Unicode(Form::Nfc),
        "normalize_nfd" => Filter::Unicode(Form::Nfd),
        "normalize_nfkc" => Filter::Unicode(Form::Nfkc),
        "normalize_nfkd" => Filter::Unicode(Form::Nfkd),
        "normalize_ar" => Filter::Normalize(Normalizer::Arabic),
        "normalize_fa" => Filter::Normalize(Normalizer::Persian),
        "normalize_de" => Filter::Normalize(Normalizer::German),
        "normalize_es" => Filter::Normalize(Normalizer::Spanish),
        "normalize_in" => Filter::Normalize(Normalizer::Indic),
        "normalize_hi" => Filter::Normalize(Normalizer::Hindi),
        "normalize_ckb" => Filter::Normalize(Normalizer::Sorani),
        "suffix_transformation_hr" => Filter::Normalize(Normalizer::Croatian),
        _ => return language_filter(name),
    };
    Some(plain)
}

fn language_filter(name: &str) -> Option<Filter> {
    if name.starts_with("stop_") {
        return Some(Filter::Stop(token_map(name)?));
    }
    if let Some(language) = name.strip_prefix("elision_") {
        return Some(Filter::Elision(token_map(&format!("articles_{language}"))?));
    }
    let language = name.strip_prefix("stemmer_")?;
    let language = language.strip_suffix("_light").unwrap_or(language);
    let language = language.strip_suffix("_min").unwrap_or(language);
    let language = language.strip_suffix("_snowball").unwrap_or(language);
    Some(Filter::Stem(language::stemmer(language)?))
}

/// Returns the token map with that name.
pub fn token_map(name: &str) -> Option<Words> {
    if let Some(language) = name.strip_prefix("stop_") {
        return Some(Arc::new(
            language::stop_words(language)?.into_iter().map(String::from).collect(),
        ));
    }
    let articles = language::articles(name.strip_prefix("articles_")?)?;
    Some(Arc::new(articles.iter().map(|word| (*word).to_owned()).collect()))
}

/// Returns the date parser with that name.
pub fn date_parser(name: &str) -> Option<DateParser> {
    Some(match name {
        "dateTimeOptional" => DateParser::optional(),
        "unix_sec" => DateParser::Unix(1),
        "unix_milli" => DateParser::Unix(1_000),
        "unix_micro" => DateParser::Unix(1_000_000),
        "unix_nano" => DateParser::Unix(1_000_000_000),
        _ => return None,
    })
}
