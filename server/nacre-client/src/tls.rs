//! Certificates that a client trusts, and the one by which it logs in.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::sync::Arc;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// A certificate by which a client logs in on encrypted connections, in place of a password, and its private key.
#[derive(Clone)]
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    /// Chain and key in the form of the HTTP library.
    http: ClientCert,
}

/// Omits the key.
impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientIdentity({} certificates)", self.chain.len())
    }
}

/// The part of a client identity that cannot be used, with the reason as a sentence without the part's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The certificate or a certificate of its chain.
    #[error("the client certificate: {0}")]
    Certificate(String),
    /// The private key.
    #[error("the key of the client certificate: {0}")]
    Key(String),
}

impl ClientIdentity {
    /// Parses a certificate, which its chain may follow, and its private key from PEM.
    ///
    /// # Errors
    /// [`IdentityError`]: a text is malformed, or the key belongs to another certificate.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<ClientIdentity, IdentityError> {
        let roots =
            TrustedRoots::from_pem("it", certificate).map_err(IdentityError::Certificate)?;
        let certificates = roots.certificates.unwrap_or_default();
        let no_key = || IdentityError::Key("it has no private key without passphrase".to_owned());
        let for_http = PrivateKey::from_pem(key).map_err(|_| no_key())?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| no_key())?;
        let owned = |certificate: &Certificate<'static>| {
            CertificateDer::from(certificate.der()).into_owned()
        };
        let identity = ClientIdentity {
            chain: certificates.iter().map(owned).collect(),
            key: Arc::new(key),
            http: ClientCert::new_with_certs(&certificates, for_http),
        };
        // The HTTP library panics if the two do not belong together.
        identity.config(RootCertStore::empty())?;
        Ok(identity)
    }

    fn config(&self, roots: RootCertStore) -> Result<ClientConfig, IdentityError> {
        let builder = ClientConfig::builder().with_root_certificates(roots);
        builder.with_client_auth_cert(self.chain.clone(), self.key.clone_key()).map_err(|error| {
            match error {
                rustls::Error::InvalidCertificate(_) => {
                    IdentityError::Certificate(error.to_string())
                }
                rustls::Error::InconsistentKeys(_) => {
                    IdentityError::Key("it does not belong to the certificate".to_owned())
                }
                _ => IdentityError::Key(error.to_string()),
            }
        })
    }
}

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
        let builder = ClientConfig::builder().with_root_certificates(self.roots()?);
        Ok(Arc::new(builder.with_no_client_auth()))
    }

    /// Returns the configuration for key-value connections that log in by `identity`.
    ///
    /// # Errors
    /// A sentence about a certificate that cannot be an authority.
    pub fn client_config_as(&self, identity: &ClientIdentity) -> Result<Arc<ClientConfig>, String> {
        let config = identity.config(self.roots()?);
        config.map(Arc::new).map_err(|error| error.to_string())
    }

    fn roots(&self) -> Result<RootCertStore, String> {
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
        Ok(roots)
    }

    /// Returns the configuration for HTTP, with the certificate of `identity`, if given.
    pub(crate) fn http_config(&self, identity: Option<&ClientIdentity>) -> TlsConfig {
        let client = identity.map(|identity| identity.http.clone());
        let builder = TlsConfig::builder().client_cert(client);
        match &self.certificates {
            None => builder.build(),
            Some(certificates) => builder.root_certs(RootCerts::from(certificates.clone())).build(),
        }
    }
}
