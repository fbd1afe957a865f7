//! A repository in a bucket of Amazon S3, or of a store that speaks its protocol.

use futures_util::TryStreamExt;
use nacre_backup::{Store, StoreError};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    RetryConfig,
};
use std::ops::Range;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Scheme of the addresses of such repositories.
const SCHEME: &str = "s3://";
/// Time after which the library does not send a request again that has failed. [`PatientStore`](super::patient::PatientStore) goes on.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Most times that it is sent again.
const RETRIES_MAX: usize = 3;

/// Code of a store that does not know conditional writes. Source: error codes of S3.
const NOT_IMPLEMENTED: &str = "NotImplemented";

/// Time of a connection, and of a request with its answer. Source: defaults of the library.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Client of a store that is named by its endpoint. It follows no redirections: they may lead to hosts that a node must not reach for whoever
/// has named the endpoint.
#[derive(Debug)]
struct Direct {
    is_plain: bool,
}

impl HttpConnector for Direct {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .https_only(!self.is_plain)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .build();
        let failed = |error| Error::Generic { store: "S3", source: Box::new(error) };
        client.map(HttpClient::new).map_err(failed)
    }
}

/// Objects under a prefix in a bucket of an object store.
///
/// Endpoint, region and credentials come from the environment, by the names that the tools of Amazon read: `AWS_ENDPOINT_URL`, `AWS_REGION`,
/// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`; without keys, those of the machine's role. The store must support
/// conditional writes (`If-None-Match: *`), which S3 does since 2024.
pub(super) struct RemoteStore {
    objects: AmazonS3,
    bucket: String,
    /// Path of the repository in the bucket, with `/` at the end unless it is empty.
    prefix: String,
    runtime: Runtime,
}

/// Returns true if a repository is named by an address of an object store, and not by a folder.
pub(super) fn is_remote(repository: &str) -> bool {
    repository.starts_with(SCHEME)
}

impl RemoteStore {
    /// Prepares requests to `s3://bucket/path`. The store is not asked yet.
    ///
    /// # Errors
    /// A sentence about a malformed address or environment.
    pub fn new(address: &str) -> Result<RemoteStore, String> {
        let cannot = |error: &dyn std::error::Error| format!("{address}: {}", reason(error));
        let place = address.strip_prefix(SCHEME).unwrap_or(address);
        let (bucket, path) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(format!("{address}: name a bucket, as {SCHEME}bucket/path"));
        }
        let path = Path::parse(path.trim_end_matches('/')).map_err(|error| cannot(&error))?;
        let prefix = if path.as_ref().is_empty() { String::new() } else { format!("{path}/") };
        // A store of one's own, on this machine or this network, may have no certificate.
        let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let mut endpoints = endpoints.iter().filter_map(|name| std::env::var(name).ok()).peekable();
        let is_named = endpoints.peek().is_some();
        let is_plain = endpoints.any(|endpoint| endpoint.starts_with("http://"));
        // Fails if there is a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig {
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_allow_http(is_plain)
            .with_retry(retry);
        if is_named {
            builder = builder.with_http_connector(Direct { is_plain });
        }
        let objects = builder.build().map_err(|error| cannot(&error))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| cannot(&error))?;
        Ok(RemoteStore { objects, bucket: bucket.to_owned(), prefix, runtime })
    }

    fn path(&self, name: &str) -> Result<Path, StoreError> {
        let path = format!("{}{name}", self.prefix);
        Path::parse(path).map_err(|error| StoreError::Failed(error.to_string()))
    }

    fn is_stored(&self, name: &str, bytes: &[u8]) -> bool {
        self.size(name) == Ok(bytes.len() as u64)
            && self.read(name, 0..u64::MAX).is_ok_and(|stored| stored == bytes)
    }
}

/// Describes an error with what caused it, which most errors of stores leave to their source.
fn reason(error: &dyn std::error::Error) -> String {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        source = error.source();
    }
    reason
}

fn store_error(name: &str, error: &Error) -> StoreError {
    match error {
        Error::NotFound { .. } => StoreError::Missing(name.to_owned()),
        Error::AlreadyExists { .. } | Error::Precondition { .. } => {
            StoreError::Exists(name.to_owned())
        }
        // No answer, or that of a server that is overloaded. Others, such as that a right is missing, do not change by themselves.
        Error::Generic { .. } if !reason(error).contains(NOT_IMPLEMENTED) => {
            StoreError::Unavailable(format!("{name}: {}", reason(error)))
        }
        error => StoreError::Failed(format!("{name}: {}", reason(error))),
    }
}

impl Store for RemoteStore {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(name)?;
        let payload = PutPayload::from(bytes.to_vec());
        let put = self.objects.put_opts(&path, payload, PutMode::Create.into());
        match self.runtime.block_on(put).map_err(|error| store_error(name, &error)) {
            // A request whose answer was lost is sent again, and then finds the object that it has stored.
            Err(StoreError::Exists(_)) if self.is_stored(name, bytes) => Ok(()),
            // Nothing else can be missing for an object that is new.
            Err(StoreError::Missing(_)) => {
                Err(StoreError::Failed(format!("there is no bucket {}", self.bucket)))
            }
            created => created.map(drop),
        }
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let path = self.path(name)?;
        let wanted = match range.end {
            u64::MAX => GetRange::Offset(range.start),
            _ => GetRange::Bounded(range.clone()),
        };
        let options = GetOptions { range: Some(wanted), ..GetOptions::default() };
        let read = self
            .runtime
            .block_on(async { self.objects.get_opts(&path, options).await?.bytes().await });
        match read {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(error @ Error::NotFound { .. }) => Err(store_error(name, &error)),
            // A range that begins behind the object is an error to HTTP.
            Err(_) if self.size(name)? <= range.start => Ok(Vec::new()),
            Err(error) => Err(store_error(name, &error)),
        }
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        let path = self.path(name)?;
        let head = self.runtime.block_on(self.objects.head(&path));
        Ok(head.map_err(|error| store_error(name, &error))?.size)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let path = self.path(prefix.trim_end_matches('/'))?;
        let listed = self.objects.list(Some(&path)).try_collect::<Vec<_>>();
        let objects = self.runtime.block_on(listed).map_err(|error| store_error(prefix, &error))?;
        let name = |path: &Path| path.as_ref().strip_prefix(&self.prefix).map(str::to_owned);
        let mut names: Vec<String> =
            objects.iter().filter_map(|object| name(&object.location)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name)?;
        match self.runtime.block_on(self.objects.delete(&path)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error(name, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_bucket_and_a_path() {
        let prefix = |address: &str| RemoteStore::new(address).map(|store| store.prefix);
        assert_eq!(prefix("s3://backups").as_deref(), Ok(""));
        assert_eq!(prefix("s3://backups/").as_deref(), Ok(""));
        assert_eq!(prefix("s3://backups/shop/daily/").as_deref(), Ok("shop/daily/"));
        assert!(prefix("s3:///shop").unwrap_err().contains("name a bucket"));
        assert!(prefix("s3://backups/../x").is_err());
    }
}
