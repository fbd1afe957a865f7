//! What `api.js` calls: the bridge that all programs have, and what only functions need.

use crate::crc64::checksum;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_js::{Host, HostError, HostValue as Value};
use nacre_js_bridge::Bridge;
use std::cell::RefCell;
use std::rc::Rc;

/// The host of a function.
pub struct Outside {
    bridge: Rc<RefCell<Bridge>>,
    /// Names the call at hand, the same when it is made again.
    call: String,
    /// Names that were made in it.
    names: u32,
    /// Where chance stands in it.
    chance: u64,
    /// What was counted in it, by the names of statistics.
    pub counted: Vec<&'static str>,
}

/// What `api.js` counts.
const COUNTERS: [&str; 6] = [
    "timer_create_counter",
    "timer_cancel_counter",
    "bucket_op_exception_count",
    "curl_success_count",
    "curl_failure_count",
    "n1ql_op_exception_count",
];

impl Outside {
    pub fn new(bridge: Rc<RefCell<Bridge>>) -> Outside {
        Outside { bridge, call: String::new(), names: 0, chance: 0, counted: Vec::new() }
    }

    /// A number from 0 up to 1, the same when a call is made again: nobody is to be surprised by it, but handlers spread
    /// load with it. Source: SplitMix64, Steele, Lea and Flood, 2014.
    fn chance(&mut self) -> f64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Begins with the call named `call`.
    pub fn begin(&mut self, call: String) {
        self.chance = checksum(call.as_bytes());
        self.call = call;
        self.names = 0;
        self.counted.clear();
    }
}

impl Host for Outside {
    fn call(&mut self, function: &str, arguments: Vec<Value>) -> Result<Value, HostError> {
        let invalid = |message: &str| HostError { code: "invalid".into(), message: message.into() };
        match (function, &arguments[..]) {
            ("unique", []) => {
                self.names += 1;
                Ok(Value::Text(format!("{}-{}", self.call, self.names)))
            }
            ("random", []) => Ok(Value::Number(self.chance())),
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
            ("utf8", [Value::Text(text)]) => Ok(Value::Bytes(text.clone().into_bytes())),
            ("crc64" | "base64.encode" | "base64.decode" | "utf8", _) => {
                Err(invalid("expected a string or bytes"))
            }
            _ => self.bridge.borrow_mut().call(function, arguments),
        }
    }
}
