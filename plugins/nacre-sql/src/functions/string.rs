//! Functions of strings. Positions and lengths are in bytes; those that start with MB_ count characters.

use super::{Function, MANY, RESULT_MAX, of_string, open, strict, too_large};
use crate::env::Context;
use crate::eval::concat;
use crate::{Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    strict("CONCAT", 1, MANY, |args, _| concat(args)),
    open("CONCAT2", 2, MANY, concat2),
    strict("CONTAINS", 2, 2, |args, _| of_two(args, |text, part| text.contains(part).into())),
    of_string!("LENGTH", |text| (text.len() as i64).into()),
    of_string!("MB_LENGTH", |text| (text.chars().count() as i64).into()),
    of_string!("LOWER", |text| text.to_lowercase().into()),
    of_string!("UPPER", |text| text.to_uppercase().into()),
    of_string!("TITLE", title),
    of_string!("INITCAP", title),
    of_string!("REVERSE", |text| text.chars().rev().collect::<String>().into()),
    strict("LPAD", 2, 3, |args, _| pad(args, true, str::len)),
    strict("RPAD", 2, 3, |args, _| pad(args, false, str::len)),
    strict("MB_LPAD", 2, 3, |args, _| pad(args, true, |text| text.chars().count())),
    strict("MB_RPAD", 2, 3, |args, _| pad(args, false, |text| text.chars().count())),
    strict("MB_POS", 2, 2, |args, _| of_two(args, |text, part| place(find_char(text, part), 0))),
    strict("MB_POS1", 2, 2, |args, _| of_two(args, |text, part| place(find_char(text, part), 1))),
    of_string!("URLENCODE", url_encode),
    of_string!("URLDECODE", url_decode),
    strict("TRIM", 1, 2, |args, _| trim(args, true, true)),
    strict("LTRIM", 1, 2, |args, _| trim(args, true, false)),
    strict("RTRIM", 1, 2, |args, _| trim(args, false, true)),
    strict("POSITION", 2, 2, |args, _| of_two(args, |text, part| place(text.find(part), 0))),
    strict("POS", 2, 2, |args, _| of_two(args, |text, part| place(text.find(part), 0))),
    strict("POSITION0", 2, 2, |args, _| of_two(args, |text, part| place(text.find(part), 0))),
    strict("POSITION1", 2, 2, |args, _| of_two(args, |text, part| place(text.find(part), 1))),
    strict("POS1", 2, 2, |args, _| of_two(args, |text, part| place(text.find(part), 1))),
    strict("MB_POSITION", 2, 2, |args, _| {
        of_two(args, |text, part| place(find_char(text, part), 0))
    }),
    strict("MB_POSITION1", 2, 2, |args, _| {
        of_two(args, |text, part| place(find_char(text, part), 1))
    }),
    strict("REPEAT", 2, 2, repeat),
    strict("REPLACE", 3, 4, replace),
    strict("SPLIT", 1, 2, split),
    strict("SUBSTR", 2, 3, |args, _| Ok(substr(args, 0, false))),
    strict("SUBSTR0", 2, 3, |args, _| Ok(substr(args, 0, false))),
    strict("SUBSTR1", 2, 3, |args, _| Ok(substr(args, 1, false))),
    strict("MB_SUBSTR", 2, 3, |args, _| Ok(substr(args, 0, true))),
    strict("MB_SUBSTR1", 2, 3, |args, _| Ok(substr(args, 1, true))),
    strict("SUFFIXES", 1, 1, |args, _| {
        let Some(text) = args[0].as_str() else { return Ok(Value::Null) };
        if text.len().saturating_mul(text.len()) > RESULT_MAX {
            return Err(too_large());
        }
        Ok(Value::array(text.char_indices().map(|(at, _)| text[at..].into()).collect()))
    }),
    of_string!("URL_ENCODE", url_encode),
    of_string!("URL_DECODE", url_decode),
    open("MASK", 1, 2, mask),
];

fn of_two(args: &[Value], compute: fn(&str, &str) -> Value) -> Result<Value> {
    Ok(match (args[0].as_str(), args[1].as_str()) {
        (Some(a), Some(b)) => compute(a, b),
        _ => Value::Null,
    })
}

fn place(at: Option<usize>, first: i64) -> Value {
    Value::Int(at.map_or(first - 1, |at| at as i64 + first))
}

fn find_char(text: &str, part: &str) -> Option<usize> {
    text.find(part).map(|at| text[..at].chars().count())
}

/// Joins the other arguments with the first as separator; arrays contribute their elements, NULL and
/// MISSING are omitted.
fn concat2(args: &[Value], _: &Context<'_>) -> Result<Value> {
    if args.iter().any(Value::is_missing) {
        return Ok(Value::Missing);
    }
    let Some(separator) = args[0].as_str() else { return Ok(Value::Null) };
    let mut parts = Vec::new();
    for arg in &args[1..] {
        for part in arg.as_array().unwrap_or(std::slice::from_ref(arg)) {
            match part {
                Value::String(text) => parts.push(&**text),
                Value::Null => {}
                _ => return Ok(Value::Null),
            }
        }
    }
    Ok(parts.join(separator).into())
}

fn title(text: &str) -> Value {
    let mut out = String::new();
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphanumeric() || c == '_' || c == '\'';
    }
    out.into()
}

fn pad(args: &[Value], left: bool, measure: fn(&str) -> usize) -> Result<Value> {
    let filler = args.get(2).map_or(Some(" "), Value::as_str);
    let (Some(text), Some(size), Some(filler)) = (args[0].as_str(), args[1].as_i64(), filler)
    else {
        return Ok(Value::Null);
    };
    let Ok(size) = usize::try_from(size) else { return Ok(Value::Null) };
    if size > RESULT_MAX {
        return Err(too_large());
    }
    let length = measure(text);
    if filler.is_empty() {
        return Ok(Value::Null);
    }
    let fitting = |text: &str, size: usize| -> String {
        let (mut end, mut used) = (0, 0);
        for c in text.chars() {
            let next = end + c.len_utf8();
            used += measure(&text[end..next]);
            if used > size {
                break;
            }
            end = next;
        }
        text[..end].to_owned()
    };
    if length >= size {
        return Ok(fitting(text, size).into());
    }
    let repeated = filler.repeat((size - length).div_ceil(measure(filler)));
    let padding = fitting(&repeated, size - length);
    Ok(if left { padding + text } else { text.to_owned() + &padding }.into())
}

fn trim(args: &[Value], left: bool, right: bool) -> Result<Value> {
    let unwanted = args.get(1).map_or(Some(" \t\n\r\u{b}\u{c}"), Value::as_str);
    let (Some(mut text), Some(unwanted)) = (args[0].as_str(), unwanted) else {
        return Ok(Value::Null);
    };
    if left {
        text = text.trim_start_matches(|c| unwanted.contains(c));
    }
    if right {
        text = text.trim_end_matches(|c| unwanted.contains(c));
    }
    Ok(text.into())
}

fn repeat(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let (Some(text), Some(count)) = (args[0].as_str(), args[1].as_i64()) else {
        return Ok(Value::Null);
    };
    let Ok(count) = usize::try_from(count) else { return Ok(Value::Null) };
    match text.len().checked_mul(count) {
        Some(length) if length <= RESULT_MAX => Ok(text.repeat(count).into()),
        _ => Err(too_large()),
    }
}

fn replace(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let (Some(text), Some(from), Some(to)) = (args[0].as_str(), args[1].as_str(), args[2].as_str())
    else {
        return Ok(Value::Null);
    };
    let count = match args.get(3) {
        None => usize::MAX,
        Some(count) => match count.as_i64() {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => return Ok(Value::Null),
        },
    };
    let matches = text.matches(from).count().min(count);
    if text.len() + matches.saturating_mul(to.len()) > RESULT_MAX {
        return Err(too_large());
    }
    Ok(text.replacen(from, to, count).into())
}

fn split(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let Some(text) = args[0].as_str() else { return Ok(Value::Null) };
    let parts: Vec<Value> = match args.get(1) {
        None => text.split_whitespace().map(Value::from).collect(),
        Some(separator) => match separator.as_str() {
            None => return Ok(Value::Null),
            Some("") => text.chars().map(|c| c.to_string().into()).collect(),
            Some(separator) => text.split(separator).map(Value::from).collect(),
        },
    };
    Ok(parts.into())
}

/// Returns a part of a string from a position, which counts from the end if it is negative.
fn substr(args: &[Value], first: i64, by_char: bool) -> Value {
    let (Some(text), Some(from)) = (args[0].as_str(), args[1].as_i64()) else { return Value::Null };
    let wanted = match args.get(2).map(Value::as_i64) {
        None => i64::MAX,
        Some(Some(length)) if length >= 0 => length,
        Some(_) => return Value::Null,
    };
    let chars: Vec<char> = if by_char { text.chars().collect() } else { Vec::new() };
    let length = if by_char { chars.len() } else { text.len() } as i64;
    let from = match from {
        from if from < 0 => from.saturating_add(length),
        from if first == 1 && from > 0 => from - 1,
        from => from,
    };
    if from < 0 || from >= length.max(1) {
        return Value::Null;
    }
    let to = from.saturating_add(wanted).min(length);
    let (from, to) = (from as usize, to as usize);
    if by_char {
        return chars[from..to].iter().collect::<String>().into();
    }
    String::from_utf8_lossy(&text.as_bytes()[from..to]).into_owned().into()
}

fn url_encode(text: &str) -> Value {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            _ if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out.into()
}

fn url_decode(text: &str) -> Value {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
                match (digit(bytes.next()), digit(bytes.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Value::Null,
                }
            }
            byte => byte,
        });
    }
    String::from_utf8(out).map_or(Value::Null, Value::from)
}

/// Puts a mask over a string; the string shows through blanks of the mask.
fn mask(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let options = args.get(1).cloned().unwrap_or(Value::object::<&str>([]));
    let (text, Value::Object(_)) = (&args[0], &options) else { return Ok(Value::Null) };
    let text: Vec<char> = match text {
        Value::Missing => return Ok(Value::Missing),
        Value::String(text) => text.chars().collect(),
        _ => return Ok(Value::Null),
    };
    let given = options.field("mask");
    let mask: Vec<char> = given.as_str().unwrap_or("********").chars().collect();
    let hole = options.field("hole").as_str().and_then(|hole| hole.chars().next()).unwrap_or(' ');
    let anchor = match options.field("anchor") {
        Value::String(word) if &*word == "end" => text.len().saturating_sub(mask.len()),
        Value::String(word) if &*word == "start" => 0,
        // The mask starts where this text is found.
        Value::String(part) => {
            let whole: String = text.iter().collect();
            whole.find(&*part).map_or(0, |at| whole[..at].chars().count())
        }
        at => at.as_i64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0),
    };
    let covered = mask.iter().enumerate().map(|(at, c)| match text.get(anchor + at) {
        Some(below) if *c == hole => *below,
        _ => *c,
    });
    let mut out: Vec<char> = text[..anchor.min(text.len())].to_vec();
    out.extend(covered);
    if options.field("length").as_str() == Some("source") {
        out.extend(text.iter().skip(anchor + mask.len()));
        out.truncate(text.len());
    }
    Ok(out.into_iter().collect::<String>().into())
}
