//! The arguments that a program passes to a host function.

use crate::{Answered, BYTES};
use nacre_js::{HostError, HostValue as Value};

/// The media type of text that is not JSON.
const TEXT: &str = "text/plain; charset=utf-8";

/// Returns the error that is thrown into the program.
pub fn error(code: &str, message: impl Into<String>) -> HostError {
    HostError { code: code.into(), message: message.into() }
}

/// The arguments of a call, in order.
pub struct Arguments(pub std::vec::IntoIter<Value>);

impl Arguments {
    pub fn text(&mut self) -> Result<String, HostError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(error("invalid", "expected a string")),
        }
    }

    pub fn key(&mut self) -> Result<Vec<u8>, HostError> {
        match self.text()? {
            key if key.is_empty() || key.len() > 65_536 => {
                Err(error("invalid", "a key has 1 to 65536 bytes"))
            }
            key => Ok(key.into_bytes()),
        }
    }

    pub fn number(&mut self) -> Result<f64, HostError> {
        match self.0.next() {
            Some(Value::Number(number)) => Ok(number),
            _ => Err(error("invalid", "expected a number")),
        }
    }

    pub fn flag(&mut self) -> Result<bool, HostError> {
        match self.0.next() {
            Some(Value::Bool(value)) => Ok(value),
            _ => Err(error("invalid", "expected true or false")),
        }
    }

    /// Takes a value in stored form: JSON text, or bytes after a marker.
    pub fn stored(&mut self) -> Result<Vec<u8>, HostError> {
        match self.0.next() {
            Some(Value::Text(json)) => Ok(json.into_bytes()),
            Some(Value::Bytes(bytes)) => Ok([&[BYTES], &bytes[..]].concat()),
            _ => Err(error("invalid", "expected a value")),
        }
    }

    /// Takes a value in the form of a document's body.
    pub fn content(&mut self) -> Result<Vec<u8>, HostError> {
        let mut body = self.stored()?;
        if body.first() == Some(&BYTES) {
            body.remove(0);
        }
        Ok(body)
    }

    /// Takes an optional body.
    pub fn optional_content(&mut self) -> Result<Option<Vec<u8>>, HostError> {
        match self.0.next() {
            None | Some(Value::Nothing) => Ok(None),
            Some(Value::Text(json)) => Ok(Some(json.into_bytes())),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(error("invalid", "expected a value")),
        }
    }

    /// Takes an optional CAS.
    pub fn cas(&mut self) -> Result<Option<u64>, HostError> {
        match self.0.next() {
            None | Some(Value::Nothing) => Ok(None),
            Some(Value::Text(cas)) => cas
                .parse()
                .map(Some)
                .map_err(|_| error("invalid", "a CAS must be a value that kv returned")),
            Some(_) => Err(error("invalid", "a CAS must be a value that kv returned")),
        }
    }

    /// Takes an optional number.
    pub fn optional_number(&mut self) -> Result<Option<f64>, HostError> {
        match self.0.next() {
            None | Some(Value::Nothing) => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number)),
            Some(_) => Err(error("invalid", "expected a number")),
        }
    }

    /// Takes text or bytes unchanged.
    pub fn body(&mut self) -> Result<Vec<u8>, HostError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text.into_bytes()),
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(error("invalid", "a body is a string or a Uint8Array")),
        }
    }

    /// Takes the remaining arguments, which alternate between names and values.
    pub fn headers(&mut self) -> Result<Vec<(String, String)>, HostError> {
        let mut headers = Vec::new();
        while let Some(name) = self.0.next() {
            match name {
                Value::Text(name) => headers.push((name, self.text()?)),
                _ => return Err(error("invalid", "a header has a name")),
            }
        }
        Ok(headers)
    }

    pub fn answered(&mut self) -> Result<Answered, HostError> {
        let status = self.number()?;
        if !(200.0..600.0).contains(&status) {
            return Err(error("invalid", format!("{status} is not a valid HTTP status")));
        }
        let (body, has_more) = (self.body()?, self.flag()?);
        let mut headers = self.headers()?;
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type".into(), TEXT.into()));
        }
        Ok(Answered { status: status as u16, headers, body, has_more })
    }
}
