//! Contexts: named nodes and logins in a file of the user, and the node of `nacre dev` in a folder.
//!
//! ```toml
//! current = "shop"
//!
//! [contexts.shop]
//! url = "https://db1.example:18091"
//! user = "ann"
//! password_file = "/home/ann/.shop-password"
//! cacert = "/home/ann/shop.pem"
//! ```
//!
//! `nacre dev` writes such an entry into `.nacre/dev.toml`, and commands in the same folder use it. Commands refuse an entry that
//! does not name an address of this machine, so that a folder from elsewhere cannot direct commands to another machine.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::address::NodeAddress;

/// The folder in the working directory in which `nacre dev` keeps its data.
pub const DEV_FOLDER: &str = ".nacre";
/// The file in that folder that names the running node.
const DEV_FILE: &str = "dev.toml";
/// Maximum size of a file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A node and a login.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// The address, in the form of `-c`.
    pub url: String,
    /// The user; `None` means `Administrator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The file that contains the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The file with the node's certificate authority, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
}

impl Context {
    /// Returns the password, if the context has one.
    ///
    /// # Errors
    /// The reason, if the password file cannot be read.
    pub fn password(&self) -> Result<Option<String>, String> {
        let Some(file) = &self.password_file else { return Ok(self.password.clone()) };
        let missing = || {
            let file = file.display();
            format!(
                "the context has its password in {file}, which does not exist: write the file, or use -p"
            )
        };
        let text = read(file)?.ok_or_else(missing)?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// All contexts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The name of the context that commands use by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// Returns the path of the file: `NACRE_CONTEXTS`, or `nacre/contexts.toml` in the user's configuration folder.
    ///
    /// # Errors
    /// The reason, if the user has no home folder.
    pub fn path() -> Result<PathBuf, String> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(path) = set("NACRE_CONTEXTS") {
            return Ok(path.into());
        }
        let folder = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")));
        folder
            .map(|folder| folder.join("nacre/contexts.toml"))
            .ok_or_else(|| "there is no HOME: name the file of contexts in NACRE_CONTEXTS".into())
    }

    /// Reads the file at `path`; a missing file has no contexts.
    ///
    /// # Errors
    /// A message that names the file and the line.
    pub fn load(path: &Path) -> Result<Contexts, String> {
        let Some(text) = read(path)? else { return Ok(Contexts::default()) };
        toml::from_str(&text).map_err(|error| {
            let (path, error) = (path.display(), error.to_string());
            format!(
                "{path}: {}\ncorrect the line, or name another file in NACRE_CONTEXTS",
                error.trim_end()
            )
        })
    }

    /// Returns the context with the given name.
    ///
    /// # Errors
    /// A message that lists the existing contexts.
    pub fn find(&self, name: &str) -> Result<&Context, String> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let others = match known.is_empty() {
                true => String::new(),
                false => format!(", only {}", known.join(", ")),
            };
            format!(
                "there is no context {name}{others}: `nacre context add {name} -c HOST` adds it"
            )
        })
    }

    /// Writes the file, which only the user can read.
    ///
    /// # Errors
    /// A message that names the file.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text = toml::to_string(self).map_err(|error| error.to_string())?;
        write_private(path, &text)
    }
}

/// Returns the node of `nacre dev` in the working directory, if one runs there.
///
/// # Errors
/// The reason, if the file is not one of `nacre dev` or names another machine.
pub fn dev_context() -> Result<Option<Context>, String> {
    dev_context_in(Path::new("."))
}

fn dev_context_in(folder: &Path) -> Result<Option<Context>, String> {
    let path = folder.join(DEV_FOLDER).join(DEV_FILE);
    let Some(text) = read(&path)? else { return Ok(None) };
    let advice = "remove it, or name a node with -c";
    let context: Context = toml::from_str(&text)
        .map_err(|error| format!("{}: {}: {advice}", path.display(), error.message()))?;
    let address: NodeAddress =
        context.url.parse().map_err(|error| format!("{}: {error}: {advice}", path.display()))?;
    match address.host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback()) {
        true => Ok(Some(context)),
        false => Err(format!("{} names the other machine {address}: {advice}", path.display())),
    }
}

/// Records the node of `nacre dev` whose data is in `folder`. Returns the path of the file; remove it when the node ends.
///
/// # Errors
/// A message that names the file.
pub fn write_dev_context(folder: &Path, context: &Context) -> Result<PathBuf, String> {
    let path = folder.join(DEV_FILE);
    let text = toml::to_string(context).map_err(|error| error.to_string())?;
    write_private(&path, &text)?;
    Ok(path)
}

/// Returns the content of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, String> {
    use std::io::Read;
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let file = match std::fs::File::open(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        file => file.map_err(failed)?,
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// Replaces a file by one that only its user can read. Readers see either the old or the new content.
fn write_private(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    let written = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&partial)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&partial, path));
    written.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn contexts_are_read_back_from_a_file_that_only_its_user_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nacre/contexts.toml");
        assert_eq!(Contexts::load(&path), Ok(Contexts::default()));
        let mut contexts = Contexts { current: Some("shop".into()), ..Contexts::default() };
        let context = Context { url: "https://db1".into(), ..Context::default() };
        contexts.contexts.insert("shop".into(), context);
        contexts.save(&path).unwrap();
        assert_eq!(Contexts::load(&path), Ok(contexts.clone()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let unknown = |contexts: &Contexts| contexts.find("till").unwrap_err();
        assert_eq!(
            unknown(&contexts),
            "there is no context till, only shop: `nacre context add till -c HOST` adds it"
        );
        assert_eq!(
            unknown(&Contexts::default()),
            "there is no context till: `nacre context add till -c HOST` adds it"
        );
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        std::fs::write(&path, "[contexts.a]\nurl = \"a\"\nusr = \"b\"\n").unwrap();
        let refused = Contexts::load(&path).unwrap_err();
        assert!(refused.contains("contexts.toml: ") && refused.contains("line 3"), "{refused}");
        assert!(refused.contains("usr") && refused.contains("NACRE_CONTEXTS"), "{refused}");
    }

    #[test]
    fn the_node_of_a_folder_is_one_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join(DEV_FOLDER);
        assert_eq!(dev_context_in(folder.path()), Ok(None));
        let here = Context { url: "http://127.0.0.1:8091".into(), ..Context::default() };
        write_dev_context(&data, &here).unwrap();
        assert_eq!(dev_context_in(folder.path()), Ok(Some(here)));
        let other = Context { url: "http://db1:8091".into(), ..Context::default() };
        write_dev_context(&data, &other).unwrap();
        assert!(dev_context_in(folder.path()).unwrap_err().contains("http://db1:8091"));
    }

    #[test]
    fn the_password_is_the_first_line_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        let context = Context { password_file: Some(file), ..Context::default() };
        assert_eq!(context.password(), Ok(Some("secret".into())));
        std::fs::remove_file(folder.path().join("password")).unwrap();
        assert!(context.password().unwrap_err().ends_with("write the file, or use -p"));
    }
}
