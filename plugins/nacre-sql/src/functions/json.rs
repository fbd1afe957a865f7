//! Functions of JSON text, tokens, UUIDs and hashes.

use super::{Function, RESULT_MAX, of_string, open, strict};
use crate::env::Context;
use crate::{Error, Result, Value, pattern};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use miniz_oxide::{deflate, inflate};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};
use std::collections::BTreeSet;

pub(super) const FUNCTIONS: &[Function] = &[
    of_string!("JSON_DECODE", json_decode),
    of_string!("DECODE_JSON", json_decode),
    open("JSON_ENCODE", 1, 1, |args, _| Ok(json_encode(&args[0]))),
    open("ENCODE_JSON", 1, 1, |args, _| Ok(json_encode(&args[0]))),
    open("ENCODED_SIZE", 1, 1, |args, _| Ok(encoded_size(&args[0]))),
    open("JSON_ENCODED_SIZE", 1, 1, |args, _| Ok(encoded_size(&args[0]))),
    strict("POLY_LENGTH", 1, 1, |args, _| {
        Ok(match &args[0] {
            Value::String(text) => (text.len() as i64).into(),
            Value::Array(elements) => (elements.len() as i64).into(),
            Value::Object(fields) => (fields.len() as i64).into(),
            _ => Value::Null,
        })
    }),
    strict("LEN", 1, 1, |args, _| {
        Ok(match &args[0] {
            Value::String(text) => (text.len() as i64).into(),
            Value::Array(elements) => (elements.len() as i64).into(),
            Value::Object(fields) => (fields.len() as i64).into(),
            Value::Bool(_) => Value::Int(1),
            number => (number.to_json().len() as i64).into(),
        })
    }),
    open("ABORT", 1, 1, |args, _| {
        let message = args[0].as_str().map_or_else(|| args[0].to_json(), str::to_owned);
        Err(Error::new(5011, format!("Abort: {message}")))
    }),
    strict("CONTAINS_TOKEN_LIKE", 2, 3, |args, _| {
        let Some(pattern) = args[1].as_str() else { return Ok(Value::Null) };
        let fits =
            |token: &Value| token.as_str().is_some_and(|text| pattern::like(text, pattern, '\\'));
        Ok(tokens(&args[0], args.get(2)).map_or(Value::Null, |all| all.iter().any(fits).into()))
    }),
    strict("CONTAINS_TOKEN_REGEXP", 2, 3, contains_token_regexp),
    strict("CONTAINS_TOKEN_REGEX", 2, 3, contains_token_regexp),
    strict("HASHBYTES", 1, 2, hash_bytes),
    open("COMPRESS", 1, 1, |args, _| Ok(compress(&args[0]))),
    of_string!("UNCOMPRESS", uncompress),
    strict("PAIRS", 1, 1, |args, _| {
        let mut all = Vec::new();
        pairs(&args[0], &mut all);
        Ok(all.into())
    }),
    open("TOKENS", 1, 2, |args, _| {
        if args.iter().any(Value::is_missing) {
            return Ok(Value::Missing);
        }
        let all = tokens(&args[0], args.get(1));
        Ok(all.map_or(Value::Null, |all| all.into_iter().collect::<Vec<_>>().into()))
    }),
    strict("CONTAINS_TOKEN", 2, 3, contains_token),
    strict("HAS_TOKEN", 2, 3, contains_token),
    open("BASE64", 1, 1, |args, _| Ok(base64(&args[0]))),
    open("BASE64_ENCODE", 1, 1, |args, _| Ok(base64(&args[0]))),
    of_string!("BASE64_DECODE", |text| {
        STANDARD.decode(text).ok().and_then(|json| Value::parse(&json).ok()).unwrap_or(Value::Null)
    }),
    open("UUID", 0, 0, |_, context| {
        // Version 4 (RFC 9562): random except for six bits.
        let high = context.host.random() & !0xF000 | 0x4000;
        let low = context.host.random() & !(3 << 62) | 1 << 63;
        Ok(format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xFFFF,
            high & 0xFFFF,
            low >> 48,
            low & 0xFFFF_FFFF_FFFF
        )
        .into())
    }),
    open("VERSION", 0, 0, |_, _| Ok(concat!(env!("CARGO_PKG_VERSION"), "-nacre").into())),
    open("MIN_VERSION", 0, 0, |_, _| Ok(concat!(env!("CARGO_PKG_VERSION"), "-nacre").into())),
];

fn json_decode(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or(Value::Null)
}

fn json_encode(value: &Value) -> Value {
    if value.is_missing() { Value::Missing } else { value.to_sorted_json().into() }
}

fn encoded_size(value: &Value) -> Value {
    Value::Int(if value.is_missing() { 0 } else { value.to_json().len() as i64 })
}

fn base64(value: &Value) -> Value {
    if value.is_missing() { Value::Missing } else { STANDARD.encode(value.to_sorted_json()).into() }
}

/// Appends pairs of name and value at every depth; the elements of an array have the array's name.
fn pairs(of: &Value, out: &mut Vec<Value>) {
    match of {
        Value::Object(fields) => {
            for (name, value) in fields.iter() {
                out.push(Value::array(vec![name.clone().into(), value.clone()]));
                if let Some(elements) = value.as_array() {
                    out.extend(
                        elements.iter().map(|e| Value::array(vec![name.clone().into(), e.clone()])),
                    );
                }
                pairs(value, out);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| pairs(element, out)),
        _ => {}
    }
}

/// The definition of a token. Source: SQL++ reference, token functions.
struct Tokenizer {
    /// True if names of fields count too.
    names: bool,
    case: fn(&str) -> String,
    /// True if texts are split into words.
    split: bool,
    /// True if texts that are not split are trimmed.
    trim: bool,
    /// True if parts between blanks and brackets count too, such as addresses and telephone numbers.
    specials: bool,
}

impl Tokenizer {
    /// Creates a tokenizer; `None` if the options are not an object.
    fn new(options: Option<&Value>) -> Option<Tokenizer> {
        let options = match options {
            None => Value::object::<&str>([]),
            Some(options) => Some(options.clone()).filter(|all| all.as_object().is_some())?,
        };
        let flag = |name: &str, default: bool| match options.field(name) {
            Value::Bool(flag) => flag,
            _ => default,
        };
        let case = match options.field("case").as_str().map(str::to_lowercase).as_deref() {
            Some("lower") => str::to_lowercase,
            Some("upper") => str::to_uppercase,
            _ => str::to_owned,
        };
        Some(Tokenizer {
            names: flag("names", true),
            case,
            split: flag("split", true),
            trim: flag("trim", true),
            specials: flag("specials", false),
        })
    }

    fn of_text(&self, text: &str, out: &mut BTreeSet<Value>) {
        let mut add = |token: &str| {
            if !token.is_empty() {
                out.insert((self.case)(token).into());
            }
        };
        if !self.split {
            return add(if self.trim { text.trim() } else { text });
        }
        text.split(|c: char| !c.is_alphanumeric()).for_each(&mut add);
        if self.specials {
            let is_between = |c: char| c.is_whitespace() || "()[]{}".contains(c);
            let parts = text.split(is_between);
            parts.for_each(|part| add(part.trim_end_matches(|c: char| !c.is_alphanumeric())));
        }
    }

    fn of_value(&self, value: &Value, out: &mut BTreeSet<Value>) {
        match value {
            Value::String(text) => self.of_text(text, out),
            Value::Array(elements) => {
                elements.iter().for_each(|element| self.of_value(element, out));
            }
            Value::Object(fields) => {
                for (name, value) in fields.iter() {
                    if self.names {
                        self.of_text(name, out);
                    }
                    self.of_value(value, out);
                }
            }
            scalar => {
                out.insert(scalar.clone());
            }
        }
    }
}

/// Returns the words and other scalars of a value; `None` if the options are not an object.
fn tokens(value: &Value, options: Option<&Value>) -> Option<BTreeSet<Value>> {
    let mut all = BTreeSet::new();
    Tokenizer::new(options)?.of_value(value, &mut all);
    Some(all)
}

fn contains_token(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let all = tokens(&args[0], args.get(2));
    Ok(all.map_or(Value::Null, |all| all.contains(&args[1]).into()))
}

fn contains_token_regexp(args: &[Value], context: &Context<'_>) -> Result<Value> {
    let Some(pattern) = args[1].as_str() else { return Ok(Value::Null) };
    let regex = super::regexp::compile(&format!("^(?:{pattern})$"), context)?;
    let fits = |token: &Value| token.as_str().is_some_and(|text| regex.is_match(text));
    Ok(tokens(&args[0], args.get(2)).map_or(Value::Null, |all| all.iter().any(fits).into()))
}

/// Returns the hash of a text, or of a value as JSON, in hexadecimal digits.
fn hash_bytes(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let text = args[0].as_str().map_or_else(|| args[0].to_sorted_json(), str::to_owned);
    let option = args.get(1).map_or(Value::Missing, |options| match options {
        Value::String(_) => options.clone(),
        options => options.field("algorithm"),
    });
    let digest = match option.as_str().unwrap_or("sha256").to_ascii_lowercase().as_str() {
        "md5" => Md5::digest(&text).to_vec(),
        "sha256" => Sha256::digest(&text).to_vec(),
        "sha224" => Sha224::digest(&text).to_vec(),
        "sha384" => Sha384::digest(&text).to_vec(),
        "sha512" => Sha512::digest(&text).to_vec(),
        "sha512/224" => Sha512_224::digest(&text).to_vec(),
        "sha512/256" => Sha512_256::digest(&text).to_vec(),
        "crc32" => match args.get(1).map_or(Some(IEEE), polynomial) {
            Some(polynomial) => crc32(polynomial, text.as_bytes()).to_be_bytes().to_vec(),
            None => return Ok(Value::Null),
        },
        _ => return Ok(Value::Null),
    };
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

/// The polynomial of IEEE 802.3, bits reversed.
const IEEE: u32 = 0xEDB8_8320;

/// Returns the polynomial of a CRC-32, bits reversed: by name or number. Source: SQL++ reference, HASHBYTES.
fn polynomial(options: &Value) -> Option<u32> {
    match options.field("polynomial") {
        Value::Missing => Some(IEEE),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "ieee" => Some(IEEE),
            "castagnoli" => Some(0x82F6_3B78),
            "koopman" => Some(0xEB31_D82E),
            text => match text.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
        },
        number => u32::try_from(number.as_i64()?).ok(),
    }
}

fn crc32(polynomial: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| match crc & 1 {
            1 => crc >> 1 ^ polynomial,
            _ => crc >> 1,
        })
    })
}

/// zlib's default compression level.
const COMPRESSION_LEVEL: u8 = 6;

/// Compresses the value as JSON with zlib, and encodes the result in base64.
fn compress(value: &Value) -> Value {
    if value.is_missing() {
        return Value::Missing;
    }
    let json = value.to_sorted_json();
    STANDARD.encode(deflate::compress_to_vec_zlib(json.as_bytes(), COMPRESSION_LEVEL)).into()
}

/// Reverses [`compress`]; NULL for text that is not compressed JSON, and for results that are too large.
fn uncompress(text: &str) -> Value {
    let bytes = STANDARD.decode(text).ok();
    let json =
        bytes.and_then(|bytes| inflate::decompress_to_vec_zlib_with_limit(&bytes, RESULT_MAX).ok());
    json.and_then(|json| Value::parse(&json).ok()).unwrap_or(Value::Null)
}
