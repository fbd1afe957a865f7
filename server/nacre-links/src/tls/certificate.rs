//! Certificates and their keys: generated, or read from an operator's files.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long before its creation a certificate is valid, because clients' clocks may be slow.
const GRACE: Duration = DAY;
const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// Each start issues a new certificate. Some clients refuse certificates with more than 825 days of validity.
const NODE_LIFE: Duration = Duration::from_secs(800 * 24 * 60 * 60);

/// The authority that signs a node's certificate: its own certificate and key, together in PEM.
pub struct Authority(String);

impl Authority {
    /// Creates an authority. `name` distinguishes it for people.
    pub fn generate(name: &str) -> Result<Authority, String> {
        Authority::generate_at(name, SystemTime::now())
    }

    /// Creates an authority as of another time.
    pub(super) fn generate_at(name: &str, made: SystemTime) -> Result<Authority, String> {
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let mut params = params(&format!("nacre {name}"), Vec::new(), AUTHORITY_LIFE)?;
        params.not_before = (made - GRACE).into();
        params.not_after = (made + AUTHORITY_LIFE).into();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
        Ok(Authority(format!("{}{}", certificate.pem(), key.serialize_pem())))
    }

    /// Reads an authority stored as [`Authority::secret_pem`], whether it is currently valid or not: see
    /// [`Authority::validity`].
    pub fn read(pem: &[u8]) -> Result<Authority, String> {
        let unusable = |reason: String| format!("the node's own authority is unusable: {reason}");
        Identity::read(pem, pem).map_err(unusable)?;
        String::from_utf8(pem.to_vec()).map(Authority).map_err(|error| unusable(error.to_string()))
    }

    /// Returns the current validity.
    pub fn validity(&self) -> Validity {
        // The certificate was parsed before.
        validity(&self.certificate()).unwrap_or(Validity::Valid)
    }

    /// Returns certificate and key in PEM.
    pub fn secret_pem(&self) -> &str {
        &self.0
    }

    /// Returns the certificate, which clients need.
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.0.as_bytes()).expect("the certificate was read before")
    }

    /// Issues a certificate for a node with these host names and addresses.
    pub fn issue(&self, names: &[String]) -> Result<Identity, String> {
        let failed = |error: rcgen::Error| format!("cannot sign a certificate: {error}");
        let own_key = PrivateKeyDer::from_pem_slice(self.0.as_bytes())
            .map_err(|error| format!("the key of the node's own authority: {error}"))?;
        let own_key = KeyPair::try_from(&own_key).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_der(&self.certificate(), own_key).map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params("nacre node", names.to_vec(), NODE_LIFE)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        // The chain includes the authority, so that clients can learn it from the connection.
        let chain = format!("{}{}", certificate.pem(), self.0);
        Identity::read(chain.as_bytes(), key.serialize_pem().as_bytes())
    }
}

fn params(name: &str, names: Vec<String>, life: Duration) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::new(names)
        .map_err(|error| format!("a name for the certificate cannot be used: {error}"))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    params.not_before = (now - GRACE).into();
    params.not_after = (now + life).into();
    Ok(params)
}

/// A certificate with its chain, and the matching key.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Parses and checks both from PEM. The error is a sentence for the operator.
    pub fn read(chain: &[u8], key: &[u8]) -> Result<Identity, String> {
        let chain = read_certificates(chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("the private key cannot be read: {error}"))?;
        let signer = any_supported_type(&key)
            .map_err(|_| "the private key is of a kind that is not supported".to_owned())?;
        CertifiedKey::new(chain.clone(), signer)
            .keys_match()
            .map_err(|_| "the private key does not belong to the certificate".to_owned())?;
        Ok(Identity { chain, key })
    }

    /// Refuses a certificate that is not valid now.
    pub fn check_time(&self) -> Result<(), String> {
        check_time(&self.chain[0])
    }
}

/// Parses the certificates of a text in PEM, at least one.
pub fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates =
        certificates.map_err(|error| format!("the certificate cannot be read: {error}"))?;
    if certificates.is_empty() {
        return Err("there is no certificate in the text, which must be PEM".into());
    }
    certificates.iter().try_for_each(|certificate| parse(certificate).map(|_| ()))?;
    Ok(certificates)
}

/// Checks that a certificate is of an authority, which may sign others.
pub fn check_authority(certificate: &CertificateDer<'_>) -> Result<(), String> {
    check_time(certificate)?;
    if parse(certificate)?.is_ca() {
        return Ok(());
    }
    Err("the certificate is not that of an authority: it may not sign others".into())
}

/// Current validity of a certificate, by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Early,
    Valid,
    Expired,
}

pub fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, String> {
    let about = describe(certificate)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    Ok(match now {
        now if now < about.not_before => Validity::Early,
        now if now > about.not_after => Validity::Expired,
        _ => Validity::Valid,
    })
}

fn check_time(certificate: &CertificateDer<'_>) -> Result<(), String> {
    match validity(certificate)? {
        Validity::Early => Err("the certificate is not valid yet".into()),
        Validity::Expired => Err("the certificate has expired".into()),
        Validity::Valid => Ok(()),
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    X509Certificate::from_der(certificate)
        .map(|(_, parsed)| parsed)
        .map_err(|error| format!("the certificate cannot be read: {error}"))
}

/// A certificate's description for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Distinguished name of the subject.
    pub subject: String,
    /// Unix time in seconds.
    pub not_before: i64,
    /// Unix time in seconds.
    pub not_after: i64,
    /// The certificate in PEM.
    pub pem: String,
}

pub fn describe(certificate: &CertificateDer<'_>) -> Result<Description, String> {
    let parsed = parse(certificate)?;
    Ok(Description {
        subject: parsed.subject().to_string(),
        not_before: parsed.validity().not_before.timestamp(),
        not_after: parsed.validity().not_after.timestamp(),
        pem: pem(certificate),
    })
}

/// Returns true if a certificate is valid and less than half of its lifetime has passed.
pub fn is_fresh(about: &Description) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    now >= about.not_before && now <= about.not_before + (about.not_after - about.not_before) / 2
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).expect("base64 is ASCII"))
        .collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// The names in a certificate from which a user name can be derived.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub common: Vec<String>,
    pub uris: Vec<String>,
    pub hosts: Vec<String>,
    pub addresses: Vec<String>,
}

pub fn names(certificate: &CertificateDer<'_>) -> Result<Names, String> {
    let parsed = parse(certificate)?;
    let common = parsed.subject().iter_common_name();
    let mut names = Names {
        common: common.filter_map(|name| name.as_str().ok().map(str::to_owned)).collect(),
        ..Names::default()
    };
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    for name in alternatives.iter().flat_map(|found| &found.value.general_names) {
        match name {
            GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
            GeneralName::DNSName(host) => names.hosts.push((*host).to_owned()),
            GeneralName::RFC822Name(address) => names.addresses.push((*address).to_owned()),
            _ => {}
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> (String, String) {
        let authority = Authority::generate("test").unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate =
            params("node", vec!["localhost".into()], NODE_LIFE).unwrap().self_signed(&key).unwrap();
        assert!(authority.issue(&["localhost".into(), "127.0.0.1".into()]).is_ok());
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_broken_certificate_is_refused_with_a_reason() {
        let (certificate, key) = identity();
        let (_, other_key) = identity();
        let expired = {
            let key = KeyPair::generate().unwrap();
            let mut params = params("old", Vec::new(), NODE_LIFE).unwrap();
            params.not_after = (SystemTime::now() - DAY / 2).into();
            (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
        };
        let half = &certificate[..certificate.len() / 2];
        let garbled = certificate.replacen("MI", "AA", 1);
        let refusal = |chain: &str, key: &str| {
            let read = Identity::read(chain.as_bytes(), key.as_bytes());
            read.and_then(|identity| identity.check_time()).err().unwrap_or_default()
        };
        assert_eq!(refusal(&certificate, &key), "");
        for (chain, key, expected) in [
            ("", &key[..], "there is no certificate in the text, which must be PEM"),
            (half, &key, "the certificate cannot be read: "),
            (&garbled, &key, "the certificate cannot be read: "),
            (&certificate, "", "the private key cannot be read: "),
            (&certificate, &other_key, "the private key does not belong to the certificate"),
            (&expired.0, &expired.1, "the certificate has expired"),
        ] {
            let said = refusal(chain, key);
            assert!(said.starts_with(expected), "{said:?} instead of {expected:?}");
        }
    }

    #[test]
    fn only_an_authority_may_be_trusted_to_sign() {
        let (certificate, _) = identity();
        let node = read_certificates(certificate.as_bytes()).unwrap();
        assert!(check_authority(&node[0]).is_err());
        let authority = Authority::generate("test").unwrap();
        assert_eq!(check_authority(&authority.certificate()), Ok(()));
    }

    #[test]
    fn a_description_carries_the_same_certificate() {
        let authority = Authority::generate("ab12").unwrap();
        let about = describe(&authority.certificate()).unwrap();
        assert_eq!(about.subject, "CN=nacre ab12");
        let again = read_certificates(about.pem.as_bytes()).unwrap();
        assert_eq!(again, [authority.certificate()]);
        assert!(about.not_before < about.not_after);
    }

    #[test]
    fn names_are_found_in_subject_and_alternatives() {
        let key = KeyPair::generate().unwrap();
        let mut params = params("ann", vec!["ann.example".into()], NODE_LIFE).unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI("u:ann".try_into().unwrap()));
        params.subject_alt_names.push(rcgen::SanType::Rfc822Name("ann@x".try_into().unwrap()));
        let certificate = params.self_signed(&key).unwrap();
        let expected = Names {
            common: vec!["ann".into()],
            uris: vec!["u:ann".into()],
            hosts: vec!["ann.example".into()],
            addresses: vec!["ann@x".into()],
        };
        assert_eq!(names(certificate.der()), Ok(expected));
    }
}
