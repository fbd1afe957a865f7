//! `nacre user`: users and their roles.

use crate::failure::Failure;
use crate::keyspace::{confirm, escaped};
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand};
use serde_json::Value;

const USERS: &str = "/settings/rbac/users/local";

/// Options of `nacre user`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// List the users
    List {
        #[command(flatten)]
        format: Format,
    },
    /// List the roles that a user can have
    Roles {
        #[command(flatten)]
        format: Format,
    },
    /// Create a user, or replace the roles of one
    Set {
        /// Name
        name: String,
        /// Roles, as data_reader[bucket:scope:collection], separated by commas
        #[arg(long)]
        roles: String,
        /// File with the password of the user; - reads a line of standard input. Needed for a new user
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<std::path::PathBuf>,
        /// Full name
        #[arg(long)]
        full_name: Option<String>,
    },
    /// Delete a user
    Rm {
        /// Name
        name: String,
        /// Delete it without asking
        #[arg(short, long)]
        yes: bool,
    },
}

/// Runs `nacre user`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let server = &options.server;
    let path = |name: &str| format!("{USERS}/{}", escaped(name));
    match &options.action {
        Action::List { format } => {
            let all = server.call("GET", "/settings/rbac/users", b"")?;
            let mut listing = Listing::new(&["user", "domain", "name", "roles"]);
            for user in all.as_array().into_iter().flatten() {
                let roles = user["roles"].as_array().into_iter().flatten().map(role);
                let [id, domain, name] =
                    ["id", "domain", "name"].map(|member| user[member].clone());
                listing.add([id, domain, name, roles.collect()]);
            }
            format.show(&listing);
        }
        Action::Roles { format } => {
            let all = server.call("GET", "/settings/rbac/roles", b"")?;
            let mut listing = Listing::new(&["role", "about"]);
            for known in all.as_array().into_iter().flatten() {
                listing.add([role(known), known["desc"].clone()]);
            }
            format.show(&listing);
        }
        Action::Set { name, roles, new_password_file, full_name } => {
            let mut form = format!("roles={}", escaped(roles));
            if let Some(file) = new_password_file {
                form.push_str(&format!("&password={}", escaped(&password_in(file)?)));
            }
            if let Some(full_name) = full_name {
                form.push_str(&format!("&name={}", escaped(full_name)));
            }
            server.call("PUT", &path(name), form.as_bytes())?;
            println!("the user {name} has the roles {roles}");
        }
        Action::Rm { name, yes } => {
            confirm(*yes, &format!("delete the user {name}"))?;
            server.call("DELETE", &path(name), b"")?;
            println!("deleted the user {name}");
        }
    }
    Ok(())
}

/// Returns a role in its text form: `data_reader[bucket:scope:collection]`.
fn role(role: &Value) -> Value {
    let name = role["role"].as_str().unwrap_or_default();
    let places = ["bucket_name", "scope_name", "collection_name"];
    let places: Vec<&str> = places.iter().map_while(|place| role[*place].as_str()).collect();
    match places.is_empty() {
        true => name.into(),
        false => format!("{name}[{}]", places.join(":")).into(),
    }
}

/// Reads a password from a file, or a line of standard input.
fn password_in(file: &std::path::Path) -> Result<String, Failure> {
    let text = if file.as_os_str() == "-" {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
    let password = text.trim_end_matches(['\r', '\n']);
    match password.is_empty() {
        true => Err(format!("{}: the password is empty", file.display()).into()),
        false => Ok(password.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_are_shown_in_their_input_form() {
        assert_eq!(role(&json!({"role": "admin"})), "admin");
        let of = json!({"role": "data_reader", "bucket_name": "b", "scope_name": "s"});
        assert_eq!(role(&of), "data_reader[b:s]");
    }
}
