//! Client certificates: whether they are requested, and which user one names.

use super::certificate::Names;
use serde::{Deserialize, Serialize};

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// No certificate is requested.
    #[default]
    Disable,
    /// The client may present a certificate, or log in otherwise.
    Enable,
    /// Connections without a certificate are refused.
    Mandatory,
}

/// The part of a certificate that contains the user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The common name of the subject.
    #[serde(rename = "subject.cn")]
    CommonName,
    /// An alternative name that is a URI.
    #[serde(rename = "san.uri")]
    Uri,
    /// An alternative name that is a host name.
    #[serde(rename = "san.dnsname")]
    HostName,
    /// An alternative name that is an e-mail address.
    #[serde(rename = "san.email")]
    Email,
}

/// Rule for the user name: the text after `prefix`, up to the first character in `delimiter`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub path: Place,
    #[serde(default)]
    pub prefix: String,
    #[serde(default)]
    pub delimiter: String,
}

/// An operator's settings for client certificates. The serialised form is that of REST and of the stored file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// Whether clients must present a certificate.
    pub state: Demand,
    /// Rules that derive the user name from a certificate; the first match counts.
    #[serde(default)]
    pub prefixes: Vec<Rule>,
}

impl ClientCertificates {
    /// Returns the user named by a certificate, by the first matching rule.
    pub fn user(&self, names: &Names) -> Option<String> {
        self.prefixes.iter().find_map(|rule| {
            let candidates = match rule.path {
                Place::CommonName => &names.common,
                Place::Uri => &names.uris,
                Place::HostName => &names.hosts,
                Place::Email => &names.addresses,
            };
            candidates.iter().find_map(|name| rule.read(name))
        })
    }
}

impl Rule {
    fn read(&self, name: &str) -> Option<String> {
        let rest = name.strip_prefix(&self.prefix)?;
        let end = rest.find(|character| self.delimiter.contains(character)).unwrap_or(rest.len());
        (end > 0).then(|| rest[..end].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_rule_names_the_user() {
        let settings: ClientCertificates = serde_json::from_str(
            r#"{"state":"enable","prefixes":[
                {"path":"san.uri","prefix":"www.","delimiter":".;"},
                {"path":"san.email","prefix":"a:","delimiter":"@"},
                {"path":"subject.cn","prefix":"","delimiter":""}]}"#,
        )
        .unwrap();
        let names = |uri: &str, email: &str, common: &str| Names {
            uris: vec![uri.into()],
            addresses: vec![email.into()],
            common: vec![common.into()],
            hosts: vec!["h".into()],
        };
        let user = |uri: &str, email: &str, common: &str| settings.user(&names(uri, email, common));
        assert_eq!(user("www.ann;x.y", "a:bob@x", "cid"), Some("ann".into()));
        assert_eq!(user("ann.x", "a:bob@x", "cid"), Some("bob".into()));
        assert_eq!(user("www.", "b", "cid"), Some("cid".into()), "an empty name names nobody");
        assert_eq!(user("", "", ""), None);
    }

    #[test]
    fn unknown_settings_are_refused() {
        for text in
            [r#"{"state":"maybe"}"#, r#"{"state":"enable","prefixes":[{"path":"x"}]}"#, "[]"]
        {
            assert!(serde_json::from_str::<ClientCertificates>(text).is_err(), "{text}");
        }
    }
}
