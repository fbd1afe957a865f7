//! Connections to the key-value services of a cluster that the options of a command name.

use crate::target::{Keys, Server};
use nacre_client::{BASIC_FEATURES, Connection};
use nacre_protocol::Feature;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

/// Time in which a node must answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster, and the user.
pub struct Cluster<'a> {
    /// Options that name the cluster and the user.
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
    /// A sentence if it cannot be found.
    pub fn open(server: &'a Server) -> Result<Cluster<'a>, String> {
        let keys = server.keys()?;
        let (user, password) = server.login()?;
        let trust = server.trust()?;
        let tls = keys.is_encrypted.then(|| trust.client_config()).transpose()?;
        Ok(Cluster { server, keys, tls, user: user.to_owned(), password: password.to_owned() })
    }

    /// Connects to a node of a bucket.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn connect(&self, address: &str, bucket: &str) -> Result<Connection, nacre_client::Error> {
        let features = [BASIC_FEATURES, &[Feature::Xattr, Feature::Json]].concat();
        let login = [self.user.as_str(), &self.password, bucket];
        let mut connection = Connection::connect(address, self.tls.as_ref(), login, &features)?;
        connection.set_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(connection)
    }

    /// Connects to the node that the user has named, or to another one of `known`.
    ///
    /// # Errors
    /// Those of the last connection.
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
    /// Those of the first connection that fails.
    pub fn connect_all(&self, bucket: &str) -> Result<Vec<Connection>, nacre_client::Error> {
        let seed = self.connect_any(&[], bucket)?;
        let servers = seed.map().servers();
        servers.iter().map(|it| self.connect(&self.reachable(&seed, it), bucket)).collect()
    }

    /// The address of a node as it is reached: a node that is alone is where it was reached, whatever it takes for its own address.
    pub fn reachable(&self, connection: &Connection, address: &str) -> String {
        match connection.map().servers() {
            [_] => connection.address().to_owned(),
            _ => address.to_owned(),
        }
    }
}
