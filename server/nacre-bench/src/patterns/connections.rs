//! Several clusters, and the connections of one client to them.

use super::properties::Properties;
use super::retry::Failure;
use crate::Durability;
use crate::http::QueryClient;
use nacre_cli::Server;
use nacre_client::{
    Bucket, Document, Key, Login, Lookup, Mutation, PathMutation, PathOperation, StoreOptions,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The client library itself retries only after vBuckets have moved; the run's policy handles temporary refusals.
const PATIENCE: Duration = Duration::from_millis(1);
/// Flags of text, as SDKs send them.
const TEXT_FLAGS: u32 = 0x0400_0000;

/// A cluster to which clients connect.
pub struct Cluster {
    /// Its name in properties.
    pub name: String,
    server: Server,
    /// Addresses of the key-value service.
    keys: Vec<String>,
    /// Address of the query service.
    queries: String,
    login: Login,
}

impl Cluster {
    /// Returns the clusters in the properties `clusters` and `nodes.NAME`, or the one at `server`.
    ///
    /// # Errors
    /// The address that is not reachable.
    pub fn all(
        server: &Server,
        bucket: &str,
        properties: &Properties,
    ) -> Result<Vec<Cluster>, String> {
        let names = properties.list("clusters");
        if names.is_empty() {
            return Ok(vec![Cluster::of("cluster1", server.clone(), bucket, properties)?]);
        }
        let (user, password) = server.login()?;
        let cluster = |name: &str| {
            let nodes = format!("nodes.{name}");
            let nodes = properties.list(&nodes);
            let node =
                nodes.first().ok_or_else(|| format!("name a node: nodes.{name}=host:8091"))?;
            Cluster::of(name, Server::new(node, user, password)?, bucket, properties)
        };
        names.into_iter().map(cluster).collect()
    }

    fn of(
        name: &str,
        server: Server,
        bucket: &str,
        properties: &Properties,
    ) -> Result<Cluster, String> {
        let keys = match properties.list(&format!("keys.{name}")) {
            given if given.is_empty() => {
                let keys = server.keys()?;
                if keys.is_encrypted {
                    return Err(
                        "bench patterns does not speak TLS: name nodes as http://host:8091".into(),
                    );
                }
                vec![keys.address]
            }
            given => given.into_iter().map(str::to_owned).collect(),
        };
        let queries = server.queries()?;
        let queries = queries.strip_prefix("http://").unwrap_or(&queries).to_owned();
        let (user, password) = server.login()?;
        let login =
            Login { user: user.into(), password: password.into(), bucket: bucket.to_owned() };
        Ok(Cluster { name: name.to_owned(), server, keys, queries, login })
    }

    /// Returns the name of the bucket.
    pub fn bucket(&self) -> &str {
        &self.login.bucket
    }

    /// Returns the number of nodes with documents, and the number of replicas.
    ///
    /// # Errors
    /// Why they cannot be determined.
    pub fn size(&self) -> Result<(usize, u64), String> {
        let bucket = self
            .server
            .call("GET", &self.path(""), b"")
            .map_err(|failure| format!("bucket {}: {}", self.bucket(), String::from(failure)))?;
        let nodes = bucket["nodes"].as_array().map_or(1, Vec::len);
        Ok((nodes, bucket["replicaNumber"].as_u64().unwrap_or(0)))
    }

    /// Removes all documents, and waits until that is done.
    ///
    /// # Errors
    /// The refusal of the cluster.
    pub fn flush(&self) -> Result<(), String> {
        self.server.call("POST", &self.path("/controller/doFlush"), b"")?;
        Ok(())
    }

    fn path(&self, more: &str) -> String {
        format!("/pools/default/buckets/{}{more}", self.bucket())
    }
}

/// The connections of one client, opened on first use.
pub struct Connections {
    clusters: Arc<Vec<Cluster>>,
    durability: Option<nacre_client::Durability>,
    keys: Vec<Option<Bucket>>,
    queries: Option<QueryClient>,
    /// Names of prepared statements by their text.
    prepared: BTreeMap<String, String>,
}

impl Connections {
    /// Creates a client of `clusters` that is not connected yet.
    pub fn new(clusters: &Arc<Vec<Cluster>>, durability: Durability) -> Connections {
        Connections {
            clusters: Arc::clone(clusters),
            durability: match durability {
                Durability::None => None,
                Durability::Majority => Some(nacre_client::Durability::Majority),
                Durability::MajorityAndPersistToActive => {
                    Some(nacre_client::Durability::MajorityAndPersistActive)
                }
                Durability::PersistToMajority => Some(nacre_client::Durability::PersistMajority),
            },
            keys: clusters.iter().map(|_| None).collect(),
            queries: None,
            prepared: BTreeMap::new(),
        }
    }

    /// Connects to the key-value services of all clusters.
    ///
    /// # Errors
    /// The address that is not reachable.
    pub fn open(&mut self) -> Result<(), Failure> {
        (0..self.clusters.len()).try_for_each(|cluster| self.keys(cluster).map(drop))
    }

    /// Returns the bucket of a cluster, by its position in `clusters`.
    fn keys(&mut self, cluster: usize) -> Result<&mut Bucket, Failure> {
        let Cluster { keys, login, .. } = &self.clusters[cluster];
        if self.keys[cluster].is_none() {
            let mut bucket = Bucket::connect(keys, None, login.clone())?;
            bucket.set_patience(PATIENCE);
            self.keys[cluster] = Some(bucket);
        }
        self.keys[cluster].as_mut().ok_or_else(|| Failure::new("connection", "it is gone"))
    }

    fn options(&self) -> StoreOptions {
        StoreOptions { durability: self.durability, ..StoreOptions::default() }
    }

    /// Adds to a counter; a missing counter is created with the value `initial`.
    pub fn count(
        &mut self,
        cluster: usize,
        key: &str,
        delta: i64,
        initial: Option<u64>,
    ) -> Result<u64, Failure> {
        let (key, durability) = (Key::of_default(key.as_bytes()), self.durability);
        Ok(self.keys(cluster)?.counter(key, delta, initial, durability)?)
    }

    /// Writes a document that must not exist.
    pub fn insert(&mut self, key: &str, value: &str) -> Result<Mutation, Failure> {
        let options = self.options();
        Ok(self.keys(0)?.add(Key::of_default(key.as_bytes()), value.as_bytes(), options)?)
    }

    /// Writes a JSON document.
    pub fn upsert(&mut self, key: &str, value: &str) -> Result<Mutation, Failure> {
        let options = self.options();
        Ok(self.keys(0)?.set(Key::of_default(key.as_bytes()), value.as_bytes(), options)?)
    }

    /// Writes a text document.
    pub fn upsert_text(&mut self, key: &str, text: &str) -> Result<Mutation, Failure> {
        let options = StoreOptions { flags: TEXT_FLAGS, ..self.options() };
        Ok(self.keys(0)?.set(Key::of_default(key.as_bytes()), text.as_bytes(), options)?)
    }

    /// Writes a document that must have the CAS `cas`.
    pub fn replace(&mut self, key: &str, value: &[u8], cas: u64) -> Result<Mutation, Failure> {
        let options = StoreOptions { cas, ..self.options() };
        Ok(self.keys(0)?.replace(Key::of_default(key.as_bytes()), value, options)?)
    }

    /// Reads a document that must exist.
    pub fn get(&mut self, key: &str) -> Result<Document, Failure> {
        let found = self.keys(0)?.get(Key::of_default(key.as_bytes()))?;
        found.ok_or_else(|| Failure::new("KEY_ENOENT", format!("{key} is not there: load first")))
    }

    /// Reads documents, sending all requests before reading any answer. Returns how many exist.
    pub fn get_many(&mut self, keys: &[String]) -> Result<usize, Failure> {
        let keys: Vec<_> = keys.iter().map(|key| Key::of_default(key.as_bytes())).collect();
        Ok(self.keys(0)?.get_many(&keys)?.iter().flatten().count())
    }

    /// Appends an element to an array of a document on the server.
    pub fn push(&mut self, key: &str, path: &str, element: &str) -> Result<Mutation, Failure> {
        let options = self.options();
        let mutation = PathMutation {
            operation: PathOperation::ArrayAppend,
            path,
            value: element.as_bytes(),
            is_xattr: false,
            create_parents: false,
        };
        let key = Key::of_default(key.as_bytes());
        Ok(self.keys(0)?.mutate_in(key, &[mutation], options)?)
    }

    /// Reads at most 16 paths of a document. Returns the values of those that exist.
    pub fn look_up(&mut self, key: &str, paths: &[String]) -> Result<Vec<Vec<u8>>, Failure> {
        let lookups: Vec<_> = paths.iter().map(|path| Lookup { path, is_xattr: false }).collect();
        let found = self.keys(0)?.lookup_in(Key::of_default(key.as_bytes()), &lookups)?;
        let missing = || Failure::new("KEY_ENOENT", format!("{key} is not there: load first"));
        Ok(found.ok_or_else(missing)?.into_iter().flatten().collect())
    }

    /// Executes a statement whose text is sent each time.
    pub fn query(&mut self, request: &Value) -> Result<Vec<Value>, Failure> {
        let Cluster { queries, login, .. } = &self.clusters[0];
        let client = match self.queries.take() {
            Some(client) => client,
            None => QueryClient::connect(queries, &login.user, &login.password)
                .map_err(|reason| Failure::new("connection", reason))?,
        };
        let client = self.queries.insert(client);
        let rows = client.rows(&request.to_string());
        rows.map_err(|reason| {
            // The rest of a broken answer would be mistaken for the next answer.
            self.queries = None;
            Failure::new("query", reason)
        })
    }

    /// Executes a statement that is prepared on first use.
    pub fn execute(&mut self, statement: &str, mut request: Value) -> Result<Vec<Value>, Failure> {
        let name = match self.prepared.get(statement) {
            Some(name) => name.clone(),
            None => {
                let prepare = format!("PREPARE {statement}");
                let rows = self.query(&serde_json::json!({ "statement": prepare }))?;
                let name = rows.first().and_then(|row| row["name"].as_str()).unwrap_or_default();
                self.prepared.insert(statement.to_owned(), name.to_owned());
                name.to_owned()
            }
        };
        request["prepared"] = name.into();
        self.query(&request)
    }
}
