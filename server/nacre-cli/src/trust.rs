//! Whom the commands that ask a node over HTTPS take for it.

use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

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
        let Some(certificates) = self.certificates()? else { return Ok(TlsConfig::default()) };
        Ok(TlsConfig::builder().root_certs(RootCerts::from(certificates)).build())
    }

    /// The same for connections of other protocols than HTTP.
    ///
    /// # Errors
    /// As [`Trust::config`].
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        match self.certificates()? {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(certificates) => {
                for certificate in certificates {
                    let certificate = CertificateDer::from(certificate.der());
                    roots.add(certificate.into_owned()).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
    }

    /// The authorities of the file; `None` when none is named.
    fn certificates(&self) -> Result<Option<Vec<Certificate<'static>>>, String> {
        let Some(path) = &self.cacert else { return Ok(None) };
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
        Ok(Some(certificates))
    }
}
