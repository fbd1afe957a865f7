//! What the nodes agree on: references to other clusters, replications, and the defaults of their settings.
//!
//! Each is a [record](nacre_cluster::ServiceRecords) in JSON, so that a later version can add to it.

use crate::settings::{Chosen, Values};
use crate::{SPEC, Xdcr};
use nacre_client::TrustedRoots;
use nacre_cluster::{Change, Cluster, Expected, RecordChange, Refusal, ServiceRecord};
use nacre_node::{Error, Node};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Key of the defaults.
const DEFAULTS: &str = "defaults";
/// Before the name of a reference.
const REFERENCE: &str = "reference/";
/// Before the ID of a replication.
const REPLICATION: &str = "replication/";
/// How often a change is tried that others make at the same time.
const ATTEMPTS_MAX: usize = 20;

/// How connections to another cluster are secured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Security {
    /// Not at all. Key-value connections prove that they know the password without sending it.
    #[default]
    None,
    /// Management is encrypted, data is not.
    Half,
    /// Everything is encrypted.
    Full,
}

impl Security {
    /// The word in requests.
    pub fn name(self) -> &'static str {
        match self {
            Security::None => "none",
            Security::Half => "half",
            Security::Full => "full",
        }
    }
}

/// Another cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// Name here.
    pub name: String,
    /// UUID of the cluster: 32 hexadecimal digits.
    pub uuid: String,
    /// `host:port` of the management service of one of its nodes.
    pub hostname: String,
    /// User there.
    pub username: String,
    /// Password of that user.
    pub password: String,
    /// How connections are secured.
    pub security: Security,
    /// Authorities in PEM; empty for those that the web trusts.
    #[serde(default)]
    pub certificate: String,
    /// True to use the addresses by which nodes are reached from outside.
    #[serde(default)]
    pub external: bool,
}

/// Shows no password.
impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({:?} at {:?})", self.name, self.hostname)
    }
}

impl Reference {
    /// Returns the authorities whose certificates are believed.
    ///
    /// # Errors
    /// A sentence about the certificate.
    pub fn trust(&self) -> Result<TrustedRoots, String> {
        if self.certificate.is_empty() {
            return Ok(TrustedRoots::default());
        }
        TrustedRoots::from_pem("certificate", self.certificate.as_bytes())
    }

    /// Returns the URL of the management service.
    pub fn url(&self) -> String {
        let scheme = if self.security == Security::None { "http" } else { "https" };
        format!("{scheme}://{}", self.hostname)
    }
}

/// A bucket that follows another one in another cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Replication {
    /// `UUID of the target cluster/source bucket/target bucket`.
    pub id: String,
    /// Chosen when it was made: a replication that is made again has nothing of the one before.
    pub uid: String,
    /// Bucket here.
    pub source: String,
    /// UUID of that bucket.
    pub source_uuid: String,
    /// UUID of the target cluster.
    pub cluster: String,
    /// Bucket there.
    pub target: String,
    /// UUID of that bucket.
    pub target_uuid: String,
    /// Grows when everything is to be sent again.
    #[serde(default)]
    pub restream: u64,
    /// Its settings, those with the default left out.
    #[serde(default)]
    pub settings: Values,
}

impl Replication {
    /// Returns the ID of a replication.
    pub fn id_of(cluster: &str, source: &str, target: &str) -> String {
        format!("{cluster}/{source}/{target}")
    }

    /// Returns the settings.
    pub fn chosen(&self) -> Chosen {
        Chosen(self.settings.clone())
    }

    /// Returns true if it is to rest.
    pub fn is_paused(&self) -> bool {
        self.chosen().flag("pauseRequested")
    }
}

/// Everything that the nodes agree on about replication.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Agreed {
    /// References, by name.
    pub references: Vec<Reference>,
    /// Replications, by ID.
    pub replications: Vec<Replication>,
    /// Settings of later replications.
    pub defaults: Values,
}

impl Agreed {
    /// Reads the records of `cluster`. What cannot be read is left out, and logged.
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

    /// Returns the reference of that name.
    pub fn reference(&self, name: &str) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.name == name)
    }

    /// Returns the reference to the cluster of that UUID.
    pub fn reference_to(&self, uuid: &str) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.uuid == uuid)
    }

    /// Returns the replication of that ID.
    pub fn replication(&self, id: &str) -> Option<&Replication> {
        self.replications.iter().find(|replication| replication.id == id)
    }
}

/// The records as they were read last: requests and tasks come far more often than changes.
#[derive(Default)]
pub(crate) struct AgreedCache(Mutex<Option<(Arc<Cluster>, Arc<Agreed>)>>);

impl AgreedCache {
    /// Returns the records of `cluster`, read again only if that is another state than the last one.
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

/// Returns what the nodes agree on now.
pub(crate) fn agreed(node: &Arc<Node>) -> Arc<Agreed> {
    agreed_of(node, &node.cluster())
}

/// Returns what the nodes have agreed on in `cluster`.
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

/// A record to be written: key, and the value as it is to be.
pub(crate) enum Write<'a> {
    /// A reference.
    Reference(&'a Reference),
    /// No reference of that name.
    NoReference(&'a str),
    /// A replication.
    Replication(&'a Replication),
    /// No replication of that ID.
    NoReplication(&'a str),
    /// Defaults of settings.
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

/// Writes a record under the condition that it is as it was in `seen`.
///
/// # Errors
/// A refusal that [`is_overtaken`] if it is not; what the node reports.
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

/// Changes a record by `work`, again as long as others change it at the same time. `work` gets what the nodes agree on, and
/// writes by [`put`].
///
/// # Errors
/// Those of `work`.
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

/// Returns true if another node has changed, created or dropped the record in between.
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
            external: false,
        };
        assert!(!format!("{reference:?}").contains("sesame"));
        assert_eq!(reference.url(), "http://b:8091");
        let text = Write::Reference(&reference).text().unwrap();
        assert_eq!(serde_json::from_str::<Reference>(&text).unwrap(), reference);
    }
}
