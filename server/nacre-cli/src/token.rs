//! `nacre token`: tokens of the HTTP API.

use crate::failure::Failure;
use crate::keyspace::{confirm, escaped};
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

const TOKENS: &str = "/api/v1/tokens";
const DAY_S: u64 = 24 * 3600;

/// Options of `nacre token`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Create a token for yourself and print it; it is shown only once
    Create {
        /// Name of the token, such as the program that uses it
        name: String,
        /// Roles that bound the token, as data_reader[bucket:scope:collection], separated by commas (default: all rights that you have)
        #[arg(long, value_delimiter = ',', value_name = "ROLES")]
        scopes: Vec<String>,
        /// Time until the token ends, as 90d, 12h or 30m; at most 366d
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = seconds)]
        expires: u64,
    },
    /// List the tokens of a user: yours, if none is named
    List {
        /// Another user; only administrators of users may ask
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// Revoke a token: it ends at once
    Revoke {
        /// ID, as nacre token list shows it
        id: String,
        /// Another user, whose token it is; only administrators of users may ask
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
        /// Revoke it without asking
        #[arg(short, long)]
        yes: bool,
    },
}

/// Runs `nacre token`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let server = &options.server;
    match &options.action {
        Action::Create { name, scopes, expires } => {
            let mut wanted = json!({"name": name, "ttl": expires});
            if !scopes.is_empty() {
                wanted["scopes"] = json!(scopes);
            }
            let token = server.call("POST", TOKENS, wanted.to_string().as_bytes())?;
            // Only the token goes to standard output, for $(nacre token create …).
            eprintln!("token {} is shown this once:", token["id"].as_str().unwrap_or_default());
            println!("{}", token["token"].as_str().unwrap_or_default());
        }
        Action::List { of, format } => {
            let answer = server.call("GET", &path(of.as_deref()), b"")?;
            let mut listing = Listing::new(&["id", "name", "scopes", "created", "expires"]);
            for token in answer["tokens"].as_array().into_iter().flatten() {
                let [id, name, created, expires] =
                    ["id", "name", "created", "expires"].map(|member| token[member].clone());
                let scopes = match &token["scopes"] {
                    Value::Null => "all rights of the user".into(),
                    scopes => scopes.clone(),
                };
                listing.add([id, name, scopes, time(&created), time(&expires)]);
            }
            format.show(&listing);
        }
        Action::Revoke { id, of, yes } => {
            confirm(*yes, &format!("revoke the token {id}"))?;
            server.call("DELETE", &format!("{}/{}", path(of.as_deref()), escaped(id)), b"")?;
            println!("revoked the token {id}");
        }
    }
    Ok(())
}

fn path(of: Option<&str>) -> String {
    match of {
        None => TOKENS.to_owned(),
        Some(user) => format!("/api/v1/users/{}/tokens", escaped(user)),
    }
}

/// Formats a Unix time in seconds as a date and a time of day, in UTC.
fn time(seconds: &Value) -> Value {
    let Some(seconds) = seconds.as_u64() else { return Value::Null };
    // Converts days to a civil date. Source: Howard Hinnant, chrono-compatible low-level date algorithms.
    let days = seconds / DAY_S + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC").into()
}

/// Parses a duration such as `90d`; without a unit it is in seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a time such as 90d, 12h, 30m or 45s");
    let digits = text.trim_end_matches(['d', 'h', 'm', 's']);
    let unit = match &text[digits.len()..] {
        "d" => DAY_S,
        "h" => 3600,
        "m" => 60,
        "s" | "" => 1,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        assert_eq!(seconds("90d"), Ok(90 * DAY_S));
        assert_eq!((seconds("12h"), seconds("30m"), seconds("5")), (Ok(43_200), Ok(1800), Ok(5)));
        for wrong in ["", "d", "1w", "1dd", "-1d", "1.5h", "99999999999999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_shown_as_dates() {
        assert_eq!(time(&json!(0)), "1970-01-01 00:00 UTC");
        assert_eq!(time(&json!(1_709_210_096)), "2024-02-29 12:34 UTC");
        assert_eq!(time(&json!(null)), Value::Null);
    }
}
