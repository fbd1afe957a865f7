//! `nacre reset-password`: another password for an administrator, given on the machine of a node that is stopped.

use crate::files::create_for_owner_alone;
use clap::Args;
use nacre_bucket::BucketEnv;
use nacre_node::password_reset;
use nacre_server::{Embedded, SystemPlatform};
use std::path::PathBuf;

/// Options of `nacre reset-password`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The data directory of the node, which is stopped
    #[arg(long, env = "NACRE_DATA_DIR", default_value = "nacre-data")]
    data_dir: PathBuf,
    /// Name of the administrator, who is created if missing
    #[arg(long, env = "NACRE_USER", default_value = "Administrator")]
    user: String,
    /// The new password; generated and shown if not given
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

/// Writes the password into the data directory; it counts once the node runs again.
///
/// # Errors
/// A sentence for the person who asks: the node runs, there is no node, or the password is too short.
pub fn run(options: &Options) -> Result<(), String> {
    if !options.data_dir.join("node").is_dir() {
        return Err(format!("there is no node in {}", options.data_dir.display()));
    }
    create_for_owner_alone();
    let platform =
        SystemPlatform::open(&options.data_dir, options.data_dir.join("plugins"), &Embedded)
            .map_err(|error| format!("{error}: stop the node first"))?;
    let password = options.password.clone().unwrap_or_else(|| {
        let generated = format!("{:016x}", platform.random());
        println!("the password of {} is {generated}", options.user);
        generated
    });
    if password.chars().count() < nacre_auth::PasswordPolicy::default().min_length {
        return Err("the password is too short: it needs at least 6 characters".to_owned());
    }
    password_reset::prepare(&platform, &options.user, &password)
        .map_err(|error| error.to_string())?;
    println!("start the node: {} is an administrator with the new password then", options.user);
    Ok(())
}
