//! `nacre context`: named nodes and logins.

use crate::contexts::{Context, Contexts, dev_context};
use crate::failure::Failure;
use crate::listing::{Format, Listing};
use crate::target::Server;
use clap::{Args, Subcommand};

/// Options of `nacre context`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The file is ~/.config/nacre/contexts.toml, or the one that NACRE_CONTEXTS names.

Examples:
  nacre context add shop -c https://db1:18091 -u ann --cacert shop.pem
  nacre context use shop
  nacre bucket list -c @shop"
)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// List the contexts; the current one has a star
    List {
        #[command(flatten)]
        format: Format,
    },
    /// Add a context with the node and the user of the options, or replace it
    Add {
        /// Name
        name: String,
        /// Save the password in the file, which only you can read; otherwise each command asks for
        /// it
        #[arg(long)]
        save_password: bool,
        #[command(flatten)]
        server: Box<Server>,
    },
    /// Make a context the current one
    Use {
        /// Name
        name: String,
    },
    /// Remove a context
    Rm {
        /// Name
        name: String,
    },
}

/// Runs `nacre context`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path)?;
    match &options.action {
        Action::List { format } => {
            let mut listing = Listing::new(&["current", "context", "node", "user"]);
            let dev = dev_context()?;
            let mut add = |is_current: bool, name: &str, context: &Context| {
                let user = context.user.clone().unwrap_or_else(|| "Administrator".to_owned());
                let star = if is_current { "*" } else { "" };
                listing.add([star.into(), name.into(), context.url.clone().into(), user.into()]);
            };
            if let Some(dev) = &dev {
                add(true, "(nacre dev of this folder)", dev);
            }
            for (name, context) in &contexts.contexts {
                add(dev.is_none() && contexts.current.as_ref() == Some(name), name, context);
            }
            format.show(&listing);
            return Ok(());
        }
        Action::Add { name, save_password, server } => {
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err("the name of a context has no spaces".into());
            }
            let context = server.as_context(*save_password)?;
            println!(
                "{name} is {} as {}",
                context.url,
                context.user.as_deref().unwrap_or_default()
            );
            contexts.contexts.insert(name.clone(), context);
            contexts.current.get_or_insert_with(|| name.clone());
        }
        Action::Use { name } => {
            let context = contexts.find(name)?;
            println!("commands use {name}, {}", context.url);
            contexts.current = Some(name.clone());
        }
        Action::Rm { name } => {
            contexts.find(name)?;
            contexts.contexts.remove(name);
            contexts.current = contexts.current.filter(|current| current != name);
            println!("removed {name}");
        }
    }
    Ok(contexts.save(&path)?)
}
