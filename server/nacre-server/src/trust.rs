//! Whom the commands that ask a node over HTTPS take for it.

use clap::Args;
use std::path::PathBuf;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// The option that says so.
#[derive(Args, Clone, Debug, Default)]
pub struct Trust {
    /// File with the authority of the node, in PEM: what `GET /pools/default/certificate` answers. Without it, certificates must
    /// be signed by an authority that the web trusts
    #[arg(long, env = "NACRE_CACERT", value_name = "FILE", global = true)]
    cacert: Option<PathBuf>,
}

impl Trust {
    /// What a client believes.
    ///
    /// # Errors
    /// A sentence about a file that cannot be read, or has no certificate.
    pub fn config(&self) -> Result<TlsConfig, String> {
        let Some(path) = &self.cacert else { return Ok(TlsConfig::default()) };
        let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut certificates = Vec::new();
        for item in parse_pem(&pem) {
            match item.map_err(|error| format!("{}: {error}", path.display()))? {
                PemItem::Certificate(certificate) => certificates.push(certificate),
                _ => return Err(format!("{} has more than certificates", path.display())),
            }
        }
        if certificates.is_empty() {
            return Err(format!("{} has no certificate in PEM", path.display()));
        }
        Ok(TlsConfig::builder().root_certs(RootCerts::from(certificates)).build())
    }
}
