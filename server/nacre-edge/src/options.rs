//! The options of `nacre-edge`: parsed and checked, with errors that name the option.

use crate::gateway;
use clap::{Args, Parser};
use nacre::{Key, StoreKind, Sync, SyncOptions};
use nacre_http::origin::Hosts;
use nacre_http::strangers::Limits;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Documents over HTTP from a folder of this machine, in step with a cluster or the hub of devices.
#[derive(Clone, Parser)]
#[command(name = "nacre-edge", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Options {
    /// Folder of the database, created when it does not exist
    #[arg(long, env = "NACRE_EDGE_FOLDER", default_value = "nacre-edge-data")]
    pub(crate) folder: PathBuf,
    /// Address and port to listen on
    #[arg(
        long,
        env = "NACRE_EDGE_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8091"
    )]
    pub(crate) listen: SocketAddr,
    /// Name of the owner. Without one, programs of this machine need no login, and others cannot connect
    #[arg(long, env = "NACRE_EDGE_USER", requires = "password")]
    pub(crate) user: Option<String>,
    /// Password of the owner
    #[arg(long, env = "NACRE_EDGE_PASSWORD", hide_env_values = true, requires = "user")]
    pub(crate) password: Option<String>,
    /// Certificate and the chain behind it, in PEM
    #[arg(long, env = "NACRE_EDGE_TLS_CERTIFICATE", requires = "tls_key", value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, env = "NACRE_EDGE_TLS_KEY", requires = "tls_certificate", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept unencrypted passwords and documents from other machines: an address of the network
    /// without TLS
    #[arg(long, env = "NACRE_EDGE_ALLOW_PLAIN")]
    pub(crate) allow_plain: bool,
    /// Names by which browsers may reach the gateway, in addition to addresses and localhost, separated by commas; `*` allows any name.
    /// Other clients may use any name
    #[arg(long, env = "NACRE_ALLOW_HOSTS", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) allow_hosts: Vec<String>,
    /// When a write is on disk: `always` before the answer, `never` at the end, or after so many milliseconds
    #[arg(long, env = "NACRE_EDGE_DURABILITY", value_name = "WHEN", default_value = "10", value_parser = durability)]
    pub(crate) durability: Sync,
    /// Store of a folder that is created: `log` or `sled`
    #[arg(long, env = "NACRE_EDGE_STORE", default_value = "log", value_parser = store)]
    pub(crate) store: StoreKind,
    /// File with the key of the documents: 32 bytes, or 64 hexadecimal digits. A folder that is created is encrypted with it
    #[arg(
        long,
        env = "NACRE_EDGE_KEY_FILE",
        value_name = "FILE",
        conflicts_with = "passphrase_file"
    )]
    pub(crate) key_file: Option<PathBuf>,
    /// File whose first line is a passphrase, in place of a key
    #[arg(long, env = "NACRE_EDGE_PASSPHRASE_FILE", value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Memory for documents, in MiB; values beyond it are read from the folder
    #[arg(long, env = "NACRE_EDGE_QUOTA_MIB", default_value_t = 64)]
    pub(crate) quota_mib: u64,
    /// Memory for requests and answers, in MiB; a quarter of it for one user
    #[arg(long, env = "NACRE_EDGE_REQUESTS_MIB", default_value_t = 128, value_parser = clap::value_parser!(u64).range(96..=65536))]
    pub(crate) requests_mib: u64,
    /// Connections at a time
    #[arg(long, env = "NACRE_EDGE_CONNECTIONS", default_value_t = 256, value_parser = clap::value_parser!(u64).range(4..=65536))]
    pub(crate) connections: u64,
    #[command(flatten)]
    pub(crate) upstream: Upstream,
}

/// The bucket that the gateway is in step with.
#[derive(Args, Clone)]
pub(crate) struct Upstream {
    /// Bucket of a cluster to be in step with: https://host:18091/bucket
    #[arg(long, env = "NACRE_EDGE_UPSTREAM", value_name = "URL", requires_all = ["upstream_user", "upstream_password", "collections"])]
    pub(crate) upstream: Option<String>,
    /// User of that cluster
    #[arg(long, env = "NACRE_EDGE_UPSTREAM_USER", value_name = "USER")]
    pub(crate) upstream_user: Option<String>,
    /// Password of that user
    #[arg(
        long,
        env = "NACRE_EDGE_UPSTREAM_PASSWORD",
        value_name = "PASSWORD",
        hide_env_values = true
    )]
    pub(crate) upstream_password: Option<String>,
    /// Authorities to trust there, in PEM (default: those that the web trusts)
    #[arg(long, env = "NACRE_EDGE_UPSTREAM_CERTIFICATES", value_name = "FILE")]
    pub(crate) upstream_certificates: Option<PathBuf>,
    /// Send the password over a network without TLS
    #[arg(long, env = "NACRE_EDGE_UPSTREAM_ALLOW_PLAIN")]
    pub(crate) upstream_allow_plain: bool,
    /// Collections to keep in step, as scope.collection, separated by commas
    #[arg(long, env = "NACRE_EDGE_COLLECTIONS", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) collections: Vec<String>,
    /// Which way documents go: `both` or `pull`
    #[arg(long, env = "NACRE_EDGE_DIRECTION", default_value = "both", value_parser = ["both", "pull"])]
    pub(crate) direction: String,
    /// The loser of a conflict: `log` parks it, `server` drops it
    #[arg(long, env = "NACRE_EDGE_CONFLICTS", default_value = "log", value_parser = ["log", "server"])]
    pub(crate) conflicts: String,
    /// Name of this gateway in lists of the cluster
    #[arg(long, env = "NACRE_EDGE_DEVICE", default_value = "gateway")]
    pub(crate) device: String,
}

const AFTER_HELP: &str = "Exit status: 0 stopped by a signal, 1 failed, 2 wrong command line.

Examples:
  nacre-edge --folder /var/lib/gateway
  nacre-edge --listen 0.0.0.0:18091 --user owner --tls-certificate chain.pem --tls-key key.pem
  nacre-edge --upstream https://hub:18091/default --upstream-user devices --collections shop.orders

Passwords are better in the environment: NACRE_EDGE_PASSWORD, NACRE_EDGE_UPSTREAM_PASSWORD.";

fn durability(text: &str) -> Result<Sync, String> {
    match text {
        "always" => Ok(Sync::Always),
        "never" => Ok(Sync::Never),
        text => match text.parse::<u64>() {
            Ok(ms @ 1..=60_000) => Ok(Sync::After(Duration::from_millis(ms))),
            _ => Err("`always`, `never` or 1 to 60000 milliseconds".into()),
        },
    }
}

fn store(text: &str) -> Result<StoreKind, String> {
    match text {
        "log" => Ok(StoreKind::Log),
        "sled" if cfg!(feature = "sled") => Ok(StoreKind::Sled),
        "sled" => Err("this binary was built without the store sled".into()),
        _ => Err("`log` or `sled`".into()),
    }
}

/// Returns the key in a file.
fn key_of(content: &[u8]) -> Result<Key, &'static str> {
    if let Ok(bytes) = content.try_into() {
        return Ok(Key::Bytes(bytes));
    }
    let refused =
        "a key is 32 bytes or 64 hexadecimal digits; for a passphrase, use --passphrase-file";
    let digits = std::str::from_utf8(content).map_err(|_| refused)?.trim_end();
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(refused);
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| refused)?;
    }
    Ok(Key::Bytes(bytes))
}

/// Returns the passphrase in a file.
fn passphrase_of(content: &[u8]) -> Result<Key, &'static str> {
    let text = std::str::from_utf8(content).map_err(|_| "a passphrase is UTF-8")?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Key::Passphrase(line.to_owned())),
        _ => Err("the first line is empty"),
    }
}

impl Options {
    /// Checks combinations of options.
    ///
    /// # Errors
    /// The problem and its fix.
    pub fn check(&self) -> Result<(), String> {
        let is_local = self.listen.ip().is_loopback();
        if !is_local && self.user.is_none() {
            return Err(format!(
                "{} can be reached by others: set --user and NACRE_EDGE_PASSWORD, or listen on 127.0.0.1",
                self.listen
            ));
        }
        if !is_local && self.tls_certificate.is_none() && !self.allow_plain {
            return Err(format!(
                "passwords would cross the network of {} as they are: set --tls-certificate and --tls-key, or --allow-plain",
                self.listen
            ));
        }
        let is_name = |name: &String| !name.is_empty() && !name.contains([':', '/', '@']);
        if self.user.as_ref().is_some_and(|name| !is_name(name)) {
            return Err("the name of the owner has no colon, slash or @, and is not empty".into());
        }
        if self.password.as_ref().is_some_and(String::is_empty) {
            return Err("the password of the owner is empty".into());
        }
        Ok(())
    }

    /// Returns the scheme of the gateway's addresses: `https` with a certificate.
    pub fn scheme(&self) -> &'static str {
        if self.tls_certificate.is_some() { "https" } else { "http" }
    }

    /// Returns the host names by which browsers may reach the gateway.
    pub(crate) fn hosts(&self) -> Hosts {
        Hosts::new(self.allow_hosts.iter().map(String::as_str))
    }

    /// Returns the connection limits: a quarter of the connections may be without a login.
    pub(crate) fn limits(&self) -> Limits {
        let descriptors_max = usize::try_from(self.connections).unwrap_or(usize::MAX);
        let strangers_max = (descriptors_max / 4).max(2);
        Limits {
            descriptors_max,
            strangers_max,
            strangers_per_address_max: (strangers_max / 2).max(1),
        }
    }

    /// Returns the options of the database. Reads the file with the key.
    ///
    /// # Errors
    /// The file that cannot be read, or has no key.
    pub(crate) fn database(&self) -> Result<nacre::Options, String> {
        let key = match (&self.key_file, &self.passphrase_file) {
            (Some(path), _) => Some((path, key_of(&gateway::read(path)?))),
            (None, Some(path)) => Some((path, passphrase_of(&gateway::read(path)?))),
            (None, None) => None,
        };
        let named = |(path, key): (&PathBuf, Result<Key, &str>)| {
            key.map_err(|what| format!("{}: {what}", path.display()))
        };
        Ok(nacre::Options {
            sync: self.durability,
            store: self.store,
            quota_mib: self.quota_mib,
            key: key.map(named).transpose()?,
            ..nacre::Options::default()
        })
    }
}

impl Upstream {
    /// Returns the options of sync; `certificates` are the trusted authorities. `None` without an upstream.
    ///
    /// # Errors
    /// The invalid option.
    pub(crate) fn sync(
        &self,
        certificates: Option<Vec<u8>>,
    ) -> Result<Option<SyncOptions>, String> {
        let Some(url) = &self.upstream else { return Ok(None) };
        let (Some(user), Some(password)) = (&self.upstream_user, &self.upstream_password) else {
            return Err("an upstream needs --upstream-user and NACRE_EDGE_UPSTREAM_PASSWORD".into());
        };
        let mut options = SyncOptions::new(url.clone())
            .login(user.clone(), password.clone())
            .collections(self.collections.clone())
            .device(self.device.clone());
        if let Some(pem) = certificates {
            options = options.certificates(pem);
        }
        if self.upstream_allow_plain {
            options = options.allow_plain();
        }
        if self.direction == "pull" {
            options = options.direction(nacre::Direction::Pull);
        }
        if self.conflicts == "server" {
            options = options.conflicts(nacre::ConflictMode::Server);
        }
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<Options, String> {
        let all = ["nacre-edge"].iter().chain(arguments);
        let options = Options::try_parse_from(all).map_err(|error| error.to_string())?;
        options.check().map(|()| options)
    }

    #[test]
    fn options_that_would_open_the_gateway_to_strangers_are_refused_by_name() {
        assert!(read(&[]).is_ok());
        assert!(read(&["--listen", "[::1]:0"]).is_ok());
        let login = ["--user", "ann", "--password", "secret"];
        for (arguments, what) in [
            (&["--listen", "0.0.0.0:1"][..], "set --user"),
            (&[&["--listen", "0.0.0.0:1"][..], &login].concat()[..], "--tls-certificate"),
            (&["--user", "ann"], "--password"),
            (&["--user", "a:b", "--password", "x"], "no colon"),
            (&["--user", "ann", "--password", ""], "empty"),
            (&["--listen", "here"], "invalid value"),
            (&["--durability", "0"], "60000 milliseconds"),
            (&["--store", "paper"], "`log` or `sled`"),
            (&["--connections", "1"], "1 is not in"),
            (&["--key-file", "a", "--passphrase-file", "b"], "cannot be used with"),
            (&["--upstream", "https://h/b"], "--upstream-user"),
            (&["--direction", "up"], "invalid value"),
            (&["--unknown"], "unexpected argument"),
        ] {
            let refused = read(arguments).err().expect(what);
            assert!(refused.contains(what), "{arguments:?}: {refused}");
        }
        let open = [&["--listen", "0.0.0.0:1", "--allow-plain"][..], &login].concat();
        assert!(read(&open).is_ok());
    }

    #[test]
    fn files_with_keys_are_read_in_their_forms() {
        assert_eq!(key_of(&[7; 32]), Ok(Key::Bytes([7; 32])));
        let digits = "0a".repeat(32);
        assert_eq!(key_of(digits.as_bytes()), Ok(Key::Bytes([10; 32])));
        assert_eq!(key_of(format!("{digits}\n").as_bytes()), Ok(Key::Bytes([10; 32])));
        for wrong in ["", "open sesame", &digits[1..], &format!("+{}", &digits[1..])] {
            assert!(key_of(wrong.as_bytes()).unwrap_err().contains("64 hexadecimal"), "{wrong}");
        }
        let passphrase = Key::Passphrase("open sesame".into());
        assert_eq!(passphrase_of(b"open sesame\nand a comment\n"), Ok(passphrase));
        assert!(passphrase_of(b"\n").is_err());
        assert!(passphrase_of(&[0xff]).is_err());
        let refused = read(&["--key-file", "/none"]).unwrap().database().map(drop).unwrap_err();
        assert!(refused.contains("/none"), "{refused}");
    }

    #[test]
    fn an_upstream_becomes_options_of_sync() {
        assert!(read(&[]).unwrap().upstream.sync(None).unwrap().is_none());
        let options = read(&[
            "--upstream",
            "http://127.0.0.1:8091/default",
            "--upstream-user",
            "devices",
            "--upstream-password",
            "secret",
            "--collections",
            "shop.orders,shop.prices",
            "--direction",
            "pull",
        ]);
        let options = options.unwrap().upstream.sync(None).unwrap().unwrap();
        let shown = format!("{options:?}");
        assert!(shown.contains("shop.prices") && shown.contains("Pull"), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
