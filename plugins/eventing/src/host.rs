//! The functions that `api.js` calls: the bridge that all programs have, and functions for Eventing only.

use crate::crc64::checksum;
use crate::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_js::{Error, Host, HostError, HostValue as Value, Random};
use nacre_js_bridge::Bridge;
use nacre_plugin::turn;
use std::cell::RefCell;
use std::rc::Rc;

/// The host of a function.
pub struct HostApi {
    bridge: Rc<RefCell<Bridge>>,
    /// Timeout of a handler, in milliseconds.
    timeout_ms: u32,
    /// Identifies the current call. A retry of the call has the same name.
    call: String,
    /// Number of names generated in this call.
    names: u32,
    /// Random numbers of this call. A retry gets the same ones.
    chance: Random,
    /// Names of the counters incremented in this call.
    pub counted: Vec<&'static str>,
}

/// Code of the error that is thrown when the timeout of a handler is over.
pub const LATE: &str = "late";

/// Counters that `api.js` increments.
const COUNTERS: [&str; 6] = [
    "timer_create_counter",
    "timer_cancel_counter",
    "bucket_op_exception_count",
    "curl_success_count",
    "curl_failure_count",
    "n1ql_op_exception_count",
];

impl HostApi {
    pub fn new(bridge: Rc<RefCell<Bridge>>, timeout_ms: u32) -> HostApi {
        HostApi {
            bridge,
            timeout_ms,
            call: String::new(),
            names: 0,
            chance: Random::default(),
            counted: Vec::new(),
        }
    }

    /// Starts the call named `call`.
    pub fn begin(&mut self, call: String) {
        self.chance = Random::new(checksum(call.as_bytes()));
        self.call = call;
        self.names = 0;
        self.counted.clear();
    }
}

impl Host for HostApi {
    fn call(&mut self, function: &str, arguments: Vec<Value>) -> Result<Value, HostError> {
        let invalid = |message: &str| HostError { code: "invalid".into(), message: message.into() };
        match (function, &arguments[..]) {
            ("unique", []) => {
                self.names += 1;
                Ok(Value::Text(format!("{}-{}", self.call, self.names)))
            }
            ("random", []) => Ok(Value::Number(self.chance.next_number())),
            ("count", [Value::Text(name)]) => {
                let known = COUNTERS.iter().find(|known| *known == name);
                self.counted.extend(known);
                Ok(Value::Nothing)
            }
            ("crc64", [Value::Text(text)]) => {
                Ok(Value::Text(format!("{:016x}", checksum(text.as_bytes()))))
            }
            ("crc64", [Value::Bytes(bytes)]) => {
                Ok(Value::Text(format!("{:016x}", checksum(bytes))))
            }
            ("base64.encode", [Value::Text(text)]) => Ok(Value::Text(BASE64_STANDARD.encode(text))),
            ("base64.encode", [Value::Bytes(bytes)]) => {
                Ok(Value::Text(BASE64_STANDARD.encode(bytes)))
            }
            ("base64.decode", [Value::Text(text)]) => match BASE64_STANDARD.decode(text) {
                Ok(bytes) => Ok(Value::Bytes(bytes)),
                Err(_) => Err(invalid("this is not base64")),
            },
            (
                "digest",
                [
                    Value::Text(challenges),
                    Value::Text(method),
                    Value::Text(uri),
                    Value::Text(user),
                    Value::Text(password),
                ],
            ) => {
                let challenges: Vec<String> =
                    serde_json::from_str(challenges).map_err(|_| invalid("expected challenges"))?;
                self.names += 1;
                let nonce = format!("{}-{}", self.call, self.names);
                let nonce = format!("{:016x}", checksum(nonce.as_bytes()));
                let asked =
                    digest::AuthenticationRequest { method, uri, user, password, nonce: &nonce };
                Ok(digest::answer(&challenges, &asked).map_or(Value::Nothing, Value::Text))
            }
            ("utf8", [Value::Text(text)]) => Ok(Value::Bytes(text.clone().into_bytes())),
            ("crc64" | "base64.encode" | "base64.decode" | "utf8", _) => {
                Err(invalid("expected a string or bytes"))
            }
            _ => {
                let outcome = self.bridge.borrow_mut().call(function, arguments);
                // Host calls that wait for others take time without executing any step of the engine. Calls for
                // documents do so only if they fail.
                let has_waited = outcome.is_err() || !function.starts_with("kv.");
                match has_waited && turn::passed_ms() >= self.timeout_ms {
                    true => Err(HostError { code: LATE.into(), message: Error::Late.to_string() }),
                    false => outcome,
                }
            }
        }
    }
}
