//! The option that names the trusted certificate authorities.

use clap::Args;
use nacre_client::TrustedRoots;
use rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::Arc;

/// The option.
#[derive(Args, Clone, Debug, Default)]
pub struct Trust {
    /// File with the authority of the node, in PEM: what `GET /pools/default/certificate` answers. Without it, certificates must
    /// be signed by an authority that the web trusts
    #[arg(
        long,
        env = "NACRE_CACERT",
        value_name = "FILE",
        global = true,
        help_heading = "Connection"
    )]
    cacert: Option<PathBuf>,
}

impl Trust {
    /// Returns this option, or the file of a context if the option is not given.
    pub(crate) fn or(self, cacert: Option<PathBuf>) -> Trust {
        Trust { cacert: self.cacert.or(cacert) }
    }

    /// Returns the file, if there is one.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        self.cacert.as_ref()
    }

    /// Reads the authorities.
    ///
    /// # Errors
    /// A message about a file that cannot be read, or has no certificate.
    pub fn roots(&self) -> Result<TrustedRoots, String> {
        let Some(path) = &self.cacert else { return Ok(TrustedRoots::default()) };
        let name = path.display().to_string();
        let pem = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
        TrustedRoots::from_pem(&name, &pem)
    }

    /// Returns the TLS configuration for protocols other than HTTP.
    ///
    /// # Errors
    /// As [`Trust::roots`].
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        self.roots()?.client_config()
    }
}
