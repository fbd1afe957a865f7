//! Certificates that a client trusts.

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Trusted certificate authorities: those of a PEM file, or those of the public web.
#[derive(Clone, Debug, Default)]
pub struct TrustedRoots {
    /// `None` for the authorities of the public web.
    certificates: Option<Vec<Certificate<'static>>>,
}

impl TrustedRoots {
    /// Parses authorities from PEM.
    ///
    /// # Errors
    /// A sentence that begins with `name`: the text is malformed, or contains something other than
    /// certificates.
    pub fn from_pem(name: &str, pem: &[u8]) -> Result<TrustedRoots, String> {
        let mut certificates = Vec::new();
        for item in parse_pem(pem) {
            match item.map_err(|error| format!("{name}: {error}"))? {
                PemItem::Certificate(certificate) => certificates.push(certificate),
                _ => return Err(format!("{name} has more than certificates")),
            }
        }
        if certificates.is_empty() {
            return Err(format!("{name} has no certificate in PEM"));
        }
        Ok(TrustedRoots { certificates: Some(certificates) })
    }

    /// Returns the configuration for key-value connections.
    ///
    /// # Errors
    /// A sentence about a certificate that cannot be an authority.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        match &self.certificates {
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

    /// Returns the configuration for HTTP.
    pub(crate) fn http_config(&self) -> TlsConfig {
        match &self.certificates {
            None => TlsConfig::default(),
            Some(certificates) => {
                let roots = RootCerts::from(certificates.clone());
                TlsConfig::builder().root_certs(roots).build()
            }
        }
    }
}
