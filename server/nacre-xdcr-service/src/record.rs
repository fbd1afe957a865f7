//! Agreed state of the service: references to other clusters, replications, and the defaults of their settings.
//!
//! Each item is a [record](nacre_cluster::ServiceRecords) in JSON, so that later versions can add fields.

use crate::settings::{Chosen, Values};
use crate::{SPEC, Xdcr};
use nacre_client::{ClientIdentity, IdentityError, TrustedRoots};
use nacre_cluster::{Change, Cluster, Expected, RecordChange, Refusal, ServiceRecord};
use nacre_node::{Error, Node};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Key of the default settings.
const DEFAULTS: &str = "defaults";
/// Key prefix of references.
const REFERENCE: &str = "reference/";
/// Key prefix of replications.
const REPLICATION: &str = "replication/";
/// Maximum number of attempts of a change that races with others.
const ATTEMPTS_MAX: usize = 20;

/// How connections to another cluster are secured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Security {
    /// Plain connections. Key-value logins prove knowledge of the password without sending it.
    #[default]
    None,
    /// Management is encrypted; data is not.
    Half,
    /// Everything is encrypted.
    Full,
}

impl Security {
    /// Returns the name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Security::None => "none",
            Security::Half => "half",
            Security::Full => "full",
        }
    }
}

/// A reference to another cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// Name of the reference on this cluster.
    pub name: String,
    /// UUID of the cluster: 32 hexadecimal digits.
    pub uuid: String,
    /// `host:port` of the management service of one of its nodes.
    pub hostname: String,
    /// User name on the other cluster; empty if a client certificate is the login.
    pub username: String,
    /// Password of that user; empty if a client certificate is the login.
    pub password: String,
    /// How connections are secured.
    pub security: Security,
    /// Certificate authorities in PEM; empty for the public web's authorities.
    #[serde(default)]
    pub certificate: String,
    /// Client certificate in PEM, by which this cluster logs in; empty for a user and a password.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client_certificate: String,
    /// Private key of the client certificate in PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client_key: String,
    /// True to use the nodes' alternate (external) addresses.
    #[serde(default)]
    pub external: bool,
}

/// Omits the password and the key.
impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({:?} at {:?})", self.name, self.hostname)
    }
}

impl Reference {
    /// Returns the trusted certificate authorities.
    ///
    /// # Errors
    /// A sentence about the error in the certificate.
    pub fn trust(&self) -> Result<TrustedRoots, String> {
        if self.certificate.is_empty() {
            return Ok(TrustedRoots::default());
        }
        TrustedRoots::from_pem("certificate", self.certificate.as_bytes())
    }

    /// Returns true if a client certificate is the login.
    pub fn has_client_certificate(&self) -> bool {
        !self.client_certificate.is_empty()
    }

    /// Returns the certificate by which this cluster logs in, if it does not do so by a password.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn identity(&self) -> Result<Option<ClientIdentity>, IdentityError> {
        if !self.has_client_certificate() {
            return Ok(None);
        }
        let (certificate, key) = (self.client_certificate.as_bytes(), self.client_key.as_bytes());
        ClientIdentity::from_pem(certificate, key).map(Some)
    }

    /// Returns the URL of the management service.
    pub fn url(&self) -> String {
        let scheme = if self.security == Security::None { "http" } else { "https" };
        format!("{scheme}://{}", self.hostname)
    }
}

/// A replication from a bucket of this cluster to a bucket of another cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Replication {
    /// `UUID of the target cluster/source bucket/target bucket`.
    pub id: String,
    /// Random UID. A replication that is deleted and created again gets another one, and no state of the first.
    pub uid: String,
    /// Name of the source bucket.
    pub source: String,
    /// UUID of the source bucket.
    pub source_uuid: String,
    /// UUID of the target cluster.
    pub cluster: String,
    /// Name of the target bucket.
    pub target: String,
    /// UUID of the target bucket.
    pub target_uuid: String,
    /// Restream counter; increases when everything must be sent again.
    #[serde(default)]
    pub restream: u64,
    /// Settings that differ from the defaults.
    #[serde(default)]
    pub settings: Values,
}

impl Replication {
    /// Returns a replication for tests, with the default settings.
    #[cfg(test)]
    pub fn sample() -> Replication {
        Replication {
            id: Replication::id_of("c", "a", "b"),
            uid: "u".to_owned(),
            source: "a".to_owned(),
            source_uuid: "s".to_owned(),
            cluster: "c".to_owned(),
            target: "b".to_owned(),
            target_uuid: "t".to_owned(),
            restream: 0,
            settings: Values::new(),
        }
    }

    /// Returns the ID of a replication.
    pub fn id_of(cluster: &str, source: &str, target: &str) -> String {
        format!("{cluster}/{source}/{target}")
    }

    /// Returns the settings.
    pub fn chosen(&self) -> Chosen {
        Chosen(self.settings.clone())
    }

    /// Returns true if the source bucket exists. A bucket of the same name with another UUID is another bucket.
    pub fn has_source(&self, cluster: &Cluster) -> bool {
        let bucket = cluster.buckets.get(&self.source);
        bucket.is_some_and(|bucket| bucket.uuid == self.source_uuid)
    }

    /// Returns true if the replication should be paused.
    pub fn is_paused(&self) -> bool {
        self.chosen().flag("pauseRequested")
    }
}

/// The service's agreed state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Agreed {
    /// References, by name.
    pub references: Vec<Reference>,
    /// Replications, by ID.
    pub replications: Vec<Replication>,
    /// Default settings for new replications.
    pub defaults: Values,
}

impl Agreed {
    /// Reads the records of `cluster`. Unreadable records are logged and skipped.
    pub fn of(cluster: &Cluster) -> Agreed {
        let mut agreed = Agreed::default();
        for (key, ServiceRecord { body: text, .. }) in cluster.service_records.of(SPEC.id) {
            if key.starts_with(REFERENCE) {
                agreed.references.extend(parsed(key, text));
            } else if key.starts_with(REPLICATION) {
                agreed.replications.extend(parsed(key, text));
            } else if key == DEFAULTS {
                agreed.defaults = parsed(key, text).unwrap_or_default();
            }
        }
        agreed
    }

    /// Returns the reference with this name.
    pub fn reference(&self, name: &str) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.name == name)
    }

    /// Returns the reference to the cluster with this UUID.
    pub fn reference_to(&self, uuid: &str) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.uuid == uuid)
    }

    /// Returns the replication with this ID.
    pub fn replication(&self, id: &str) -> Option<&Replication> {
        self.replications.iter().find(|replication| replication.id == id)
    }
}

/// Caches the parsed records: requests and tasks read them far more often than they change.
#[derive(Default)]
pub(crate) struct AgreedCache(Mutex<Option<(Arc<Cluster>, Arc<Agreed>)>>);

impl AgreedCache {
    /// Returns the records of `cluster`; parses them only if the state has changed.
    pub fn of(&self, cluster: &Arc<Cluster>) -> Arc<Agreed> {
        let mut known = self.0.lock();
        if let Some((_, agreed)) = known.as_ref().filter(|(of, _)| Arc::ptr_eq(of, cluster)) {
            return Arc::clone(agreed);
        }
        let agreed = Arc::new(Agreed::of(cluster));
        *known = Some((Arc::clone(cluster), Arc::clone(&agreed)));
        agreed
    }
}

/// Returns the current agreed state.
pub(crate) fn agreed(node: &Arc<Node>) -> Arc<Agreed> {
    agreed_of(node, &node.cluster())
}

/// Returns the agreed state of the service in `cluster`.
pub(crate) fn agreed_of(node: &Arc<Node>, cluster: &Arc<Cluster>) -> Arc<Agreed> {
    match node.service::<Xdcr>() {
        Some(service) => service.agreed.of(cluster),
        None => Arc::new(Agreed::of(cluster)),
    }
}

fn parsed<T: DeserializeOwned>(key: &str, text: &str) -> Option<T> {
    let read = serde_json::from_str(text);
    read.inspect_err(|error| tracing::error!("replication: {key} cannot be read: {error}")).ok()
}

/// A write to the agreed state.
pub(crate) enum Write<'a> {
    /// Stores a reference.
    Reference(&'a Reference),
    /// Removes the reference with this name.
    NoReference(&'a str),
    /// Stores a replication.
    Replication(&'a Replication),
    /// Removes the replication with this ID.
    NoReplication(&'a str),
    /// Stores the default settings.
    Defaults(&'a Values),
}

impl Write<'_> {
    fn key(&self) -> String {
        match self {
            Write::Reference(reference) => format!("{REFERENCE}{}", reference.name),
            Write::NoReference(name) => format!("{REFERENCE}{name}"),
            Write::Replication(replication) => format!("{REPLICATION}{}", replication.id),
            Write::NoReplication(id) => format!("{REPLICATION}{id}"),
            Write::Defaults(_) => DEFAULTS.to_owned(),
        }
    }

    fn text(&self) -> Option<String> {
        let text = match self {
            Write::Reference(reference) => serde_json::to_string(reference),
            Write::Replication(replication) => serde_json::to_string(replication),
            Write::Defaults(values) => serde_json::to_string(values),
            Write::NoReference(_) | Write::NoReplication(_) => return None,
        };
        Some(text.expect("records are plain data"))
    }
}

/// Writes a record if it still equals its value in `seen`.
///
/// # Errors
/// A refusal for which [`is_overtaken`] returns true if the record has changed; errors of the node.
pub(crate) fn put(node: &Arc<Node>, seen: &Cluster, write: &Write<'_>) -> Result<(), Error> {
    let (service, name) = (SPEC.id.to_owned(), write.key());
    let before = seen.service_records.get(SPEC.id, &name);
    let body = write.text();
    if body.as_ref() == before.map(|record| &record.body) {
        return Ok(());
    }
    let expected =
        before.map_or(Expected::Nothing, |record| Expected::Version(record.version.clone()));
    let change = match body {
        Some(body) => {
            let version = format!("{:016x}", node.random());
            let record = Box::new(ServiceRecord { version, bucket: None, scope: None, body });
            Change::Records(RecordChange::PutServiceRecord { service, name, record, expected })
        }
        None => Change::Records(RecordChange::DropServiceRecord { service, name, expected }),
    };
    node.change(&change).map(drop)
}

/// Changes a record by `work`, and retries while other nodes change it concurrently. `work` receives the agreed state and
/// writes by [`put`].
///
/// # Errors
/// The errors of `work`.
pub(crate) fn change<T>(
    node: &Arc<Node>,
    mut work: impl FnMut(&Cluster, Agreed) -> Result<T, Error>,
) -> Result<T, Error> {
    node.catch_up();
    let mut attempt = 1;
    loop {
        let seen = node.cluster();
        match work(&seen, Agreed::of(&seen)) {
            Err(Error::Refused(refusal)) if is_overtaken(&refusal) && attempt < ATTEMPTS_MAX => {
                node.catch_up();
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Returns true if another node has changed, created or dropped the record concurrently.
fn is_overtaken(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::RecordChanged { .. }
            | Refusal::RecordExists { .. }
            | Refusal::RecordNotFound { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_does_not_show_its_password() {
        let reference = Reference {
            name: "b".to_owned(),
            uuid: "u".repeat(32),
            hostname: "b:8091".to_owned(),
            username: "ann".to_owned(),
            password: "sesame".to_owned(),
            security: Security::None,
            certificate: String::new(),
            client_certificate: String::new(),
            client_key: String::new(),
            external: false,
        };
        assert!(!format!("{reference:?}").contains("sesame"));
        let by_certificate = Reference { client_key: "secret".to_owned(), ..reference.clone() };
        assert!(!format!("{by_certificate:?}").contains("secret"));
        assert_eq!(reference.url(), "http://b:8091");
        let text = Write::Reference(&reference).text().unwrap();
        assert_eq!(serde_json::from_str::<Reference>(&text).unwrap(), reference);
    }
}
