//! TLS versions and cipher suites that the operator of the cluster allows.

use nacre_cluster::{Security, TlsFloor};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Returns the IANA name of a cipher suite.
fn name(suite: &SupportedCipherSuite) -> &'static str {
    match suite.suite().as_str() {
        Some("TLS13_AES_256_GCM_SHA384") => "TLS_AES_256_GCM_SHA384",
        Some("TLS13_AES_128_GCM_SHA256") => "TLS_AES_128_GCM_SHA256",
        Some("TLS13_CHACHA20_POLY1305_SHA256") => "TLS_CHACHA20_POLY1305_SHA256",
        Some(name) => name,
        None => "",
    }
}

/// Returns the IANA names of all cipher suites, in the default order of preference.
pub fn suite_names() -> Vec<&'static str> {
    ring::default_provider().cipher_suites.iter().map(name).collect()
}

/// The versions that clients may speak.
pub(super) fn versions(security: &Security) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_1_2: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    static FROM_1_3: [&SupportedProtocolVersion; 1] = [&TLS13];
    match security.tls_min {
        TlsFloor::Tls12 => &FROM_1_2,
        TlsFloor::Tls13 => &FROM_1_3,
    }
}

/// The library with the cipher suites that are allowed, in the operator's order.
pub(super) fn provider(security: &Security) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    if !security.cipher_suites.is_empty() {
        let all = std::mem::take(&mut provider.cipher_suites);
        let wanted = security.cipher_suites.iter();
        let found = wanted.filter_map(|wanted| all.iter().find(|suite| name(suite) == wanted));
        provider.cipher_suites = found.copied().collect();
    }
    Arc::new(provider)
}

/// Checks that clients can still connect.
///
/// # Errors
/// A sentence, if no cipher suite is left for the versions that are allowed.
pub fn check(security: &Security) -> Result<(), String> {
    let provider = provider(security);
    let allowed = versions(security);
    let fits = |suite: &SupportedCipherSuite| {
        allowed.iter().any(|version| version.version == suite.version().version)
    };
    if provider.cipher_suites.iter().any(fits) {
        return Ok(());
    }
    Err("None of these suites belongs to a version of TLS that is allowed.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn security(suites: &[&str], tls_min: TlsFloor) -> Security {
        let cipher_suites = suites.iter().map(|name| (*name).to_owned()).collect();
        Security { cipher_suites, tls_min, ..Security::default() }
    }

    #[test]
    fn cipher_suites_follow_the_order_of_the_operator() {
        let wanted = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"];
        let provider = provider(&security(&wanted, TlsFloor::Tls12));
        let names: Vec<&str> = provider.cipher_suites.iter().map(name).collect();
        assert_eq!(names, wanted);
        assert!(wanted.iter().all(|name| suite_names().contains(name)));
    }

    #[test]
    fn settings_that_would_lock_out_every_client_are_refused() {
        let old = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
        assert!(check(&security(&old, TlsFloor::Tls12)).is_ok());
        assert!(check(&security(&old, TlsFloor::Tls13)).is_err());
        assert!(check(&security(&["unknown"], TlsFloor::Tls12)).is_err());
        assert!(check(&security(&[], TlsFloor::Tls13)).is_ok());
    }
}
