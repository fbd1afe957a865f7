//! Connections to the key-value services of the cluster that a command's options name.

use crate::target::{Keys, Server};
use nacre_client::{BASIC_FEATURES, Connection};
use nacre_protocol::Feature;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for an answer of a node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster and a user.
pub struct Cluster<'a> {
    /// The options that name the cluster and the user.
    pub server: &'a Server,
    keys: Keys,
    tls: Option<Arc<ClientConfig>>,
    user: String,
    password: String,
}

impl<'a> Cluster<'a> {
    /// Finds the key-value service of a cluster.
    ///
    /// # Errors
    /// A message, if the service cannot be found.
    pub fn open(server: &'a Server) -> Result<Cluster<'a>, String> {
        let keys = server.keys()?;
        let (user, password) = server.login()?;
        let trust = server.trust()?;
        let tls = keys.is_encrypted.then(|| trust.client_config()).transpose()?;
        Ok(Cluster { server, keys, tls, user: user.to_owned(), password: password.to_owned() })
    }

    /// Connects to a node, and selects a bucket.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn connect(&self, address: &str, bucket: &str) -> Result<Connection, nacre_client::Error> {
        let features = [BASIC_FEATURES, &[Feature::Xattr, Feature::Json]].concat();
        let login = [self.user.as_str(), &self.password, bucket];
        let mut connection = Connection::connect(address, self.tls.as_ref(), login, &features)?;
        connection.set_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(connection)
    }

    /// Connects to the node that the user named, or else to another node of `known`.
    ///
    /// # Errors
    /// Errors of the last connection.
    pub fn connect_any(
        &self,
        known: &[String],
        bucket: &str,
    ) -> Result<Connection, nacre_client::Error> {
        let mut connected = self.connect(&self.keys.address, bucket);
        for address in known {
            if connected.is_ok() {
                break;
            }
            connected = self.connect(address, bucket);
        }
        connected
    }

    /// Connects to each node of a bucket.
    ///
    /// # Errors
    /// The error of the first connection that fails.
    pub fn connect_all(&self, bucket: &str) -> Result<Vec<Connection>, nacre_client::Error> {
        let seed = self.connect_any(&[], bucket)?;
        let servers = seed.map().servers();
        servers.iter().map(|it| self.connect(&self.reachable(&seed, it), bucket)).collect()
    }

    /// Returns the address at which a node can be reached. A single node is reached at the address that the user gave, not at the
    /// address that it reports.
    pub fn reachable(&self, connection: &Connection, address: &str) -> String {
        match connection.map().servers() {
            [_] => connection.address().to_owned(),
            _ => address.to_owned(),
        }
    }
}
