//! Packages: a manifest and the files that it names, as one archive (uncompressed tar).

use crate::Manifest;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;

/// Maximum size of a package in bytes. A plugin in Python has about 19 MB.
pub const PACKAGE_BYTES_MAX: usize = 32 << 20;
/// Maximum number of files of a package.
const FILES_MAX: usize = 64;
/// Name of the manifest.
const MANIFEST: &str = "plugin.toml";

/// Returns the digest that identifies a package or a component: SHA-256 in hexadecimal, 64 characters.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An uploaded plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The manifest.
    pub manifest: Manifest,
    /// The text of the manifest.
    pub manifest_text: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Package {
    /// Creates a package from a manifest and its files, by name.
    ///
    /// # Errors
    /// The error, for the author.
    pub fn new(manifest_text: String, files: BTreeMap<String, Vec<u8>>) -> Result<Package, String> {
        let manifest = Manifest::read(&manifest_text)?;
        if let Some(name) = manifest.files().find(|name| !files.contains_key(*name)) {
            return Err(format!("plugin.toml names {name:?}, which is missing"));
        }
        Ok(Package { manifest, manifest_text, files })
    }

    /// Parses an archive.
    ///
    /// # Errors
    /// The error, for the author.
    pub fn read(archive: &[u8]) -> Result<Package, String> {
        if archive.len() > PACKAGE_BYTES_MAX {
            return Err(format!("a package has at most {PACKAGE_BYTES_MAX} bytes"));
        }
        let broken = |error: std::io::Error| format!("not a package (a tar archive): {error}");
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            if files.len() == FILES_MAX {
                return Err(format!("a package has at most {FILES_MAX} files"));
            }
            let name = String::from_utf8(entry.path_bytes().into_owned())
                .map_err(|_| "the name of a file is not UTF-8")?;
            let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
            // The claimed size of an entry is limited by the size of the archive.
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(broken)?;
            files.insert(name, content);
        }
        let manifest = files.remove(MANIFEST).ok_or("the package has no plugin.toml")?;
        let manifest = String::from_utf8(manifest).map_err(|_| "plugin.toml is not UTF-8")?;
        Package::new(manifest, files)
    }

    /// Returns the configuration for opening the package's component: `config`, which the deployer provides; for a
    /// script, wrapped together with the script and its modules.
    ///
    /// # Errors
    /// A sentence for the author: the script is not UTF-8, or `config` is not JSON.
    pub fn config(&self, config: &str) -> Result<String, String> {
        if self.manifest.script.is_none() {
            return Ok(config.to_owned());
        }
        let text = |name: &str, bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| format!("{name} is not UTF-8"))
        };
        let file = self.manifest.file();
        let source = text(file, self.code())?;
        // Named as in the script's imports.
        let module = |(name, bytes)| Ok((format!("./{name}"), text(name, bytes)?));
        let modules = self.modules().map(module).collect::<Result<BTreeMap<_, _>, String>>()?;
        let config: serde_json::Value =
            serde_json::from_str(config).map_err(|error| format!("the configuration: {error}"))?;
        let whole = serde_json::json!({"file": file, "source": source, "modules": modules, "config": config});
        Ok(whole.to_string())
    }

    /// Returns the archive. Equal packages result in equal bytes.
    ///
    /// # Panics
    /// When the name of a file is too long for an archive.
    pub fn write(&self) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        let manifest = (MANIFEST, self.manifest_text.as_bytes());
        let files = self.files.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
        for (name, content) in std::iter::once(manifest).chain(files) {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive
                .append_data(&mut header, name, content)
                .expect("writing to memory does not fail");
        }
        archive.into_inner().expect("writing to memory does not fail")
    }

    /// Returns a package with the same code, another version, and a separate state.
    ///
    /// # Errors
    /// Fails when the version is invalid.
    pub fn as_version(&self, version: &str) -> Result<Package, String> {
        let manifest = Manifest {
            version: version.to_owned(),
            state_version: version.to_owned(),
            ..self.manifest.clone()
        };
        let text = toml::to_string(&manifest).map_err(|error| error.to_string())?;
        Package::new(text, self.files.clone())
    }

    /// Returns the component or script.
    pub fn code(&self) -> &[u8] {
        &self.files[self.manifest.file()]
    }

    /// Returns the modules of the script, by name.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.manifest.modules.iter().map(|name| (name.as_str(), &self.files[name][..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST_TEXT: &str = "name = \"c\"\nversion = \"1\"\nscript = \"main.js\"\n";

    fn package() -> Package {
        let files = BTreeMap::from([("main.js".to_owned(), b"export function f() {}".to_vec())]);
        Package::new(MANIFEST_TEXT.into(), files).unwrap()
    }

    #[test]
    fn a_package_reads_back_as_written() {
        let package = package();
        assert_eq!(Package::read(&package.write()), Ok(package));
    }

    #[test]
    fn a_package_has_the_modules_that_its_manifest_names() {
        let manifest = format!("{MANIFEST_TEXT}modules = [\"lib.js\"]\n");
        let files = [("main.js", "import './lib.js'"), ("lib.js", "export {}")];
        let owned = |(name, text): (&str, &str)| (name.to_owned(), text.as_bytes().to_vec());
        let whole = Package::new(manifest.clone(), files.map(owned).into()).unwrap();
        let read = Package::read(&whole.write()).unwrap().as_version("2").unwrap();
        assert_eq!(read.modules().collect::<Vec<_>>(), [("lib.js", &b"export {}"[..])]);
        let missing = Package::new(manifest, [owned(files[0])].into()).unwrap_err();
        assert_eq!(missing, "plugin.toml names \"lib.js\", which is missing");
    }

    #[test]
    fn another_version_differs_in_nothing_else() {
        let other = package().as_version("2").unwrap();
        assert_eq!((other.manifest.version.as_str(), other.code()), ("2", package().code()));
        assert_eq!(Package::read(&other.write()), Ok(other));
    }

    #[test]
    fn a_malformed_package_is_refused_with_a_reason() {
        assert!(Package::read(b"").unwrap_err().contains("no plugin.toml"));
        assert!(Package::read(&[7; 1024]).unwrap_err().contains("not a package"));
        let missing = Package::new(MANIFEST_TEXT.into(), BTreeMap::new()).unwrap_err();
        assert_eq!(missing, "plugin.toml names \"main.js\", which is missing");
    }

    #[test]
    fn every_damaged_archive_is_refused_or_reads_as_something() {
        let archive = package().write();
        for cut in 0..archive.len() {
            let _ = Package::read(&archive[..cut]);
            let mut flipped = archive.clone();
            flipped[cut] ^= 0x81;
            let _ = Package::read(&flipped);
        }
    }
}
