//! A repository in an object store.

use super::connect::{connect, reason};
use futures_util::TryStreamExt;
use nacre_backup::{RemoteAddress, Scheme, Store, StoreError};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use std::ops::Range;
use tokio::runtime::Runtime;

/// Code of a store that does not know conditional writes. Source: error codes of S3.
const NOT_IMPLEMENTED: &str = "NotImplemented";

/// Objects under a prefix in a bucket or container of an object store, which must support writes on condition that there is no object yet.
pub(super) struct RemoteStore {
    objects: Box<dyn ObjectStore>,
    scheme: &'static Scheme,
    container: String,
    /// Path of the repository in the container, with `/` at the end unless it is empty.
    prefix: String,
    runtime: Runtime,
}

impl RemoteStore {
    /// Prepares requests to a store. The store is not asked yet.
    ///
    /// # Errors
    /// A sentence about a malformed path or environment.
    pub fn new(address: &RemoteAddress<'_>) -> Result<RemoteStore, String> {
        let path = Path::parse(address.path).map_err(|error| reason(&error))?;
        let prefix = if path.as_ref().is_empty() { String::new() } else { format!("{path}/") };
        let objects = connect(address, &|name| std::env::var(name).ok())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| reason(&error))?;
        let (scheme, container) = (address.scheme, address.container.to_owned());
        Ok(RemoteStore { objects, scheme, container, prefix, runtime })
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
                let container = self.scheme.container;
                Err(StoreError::Failed(format!("there is no {container} {}", self.container)))
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
    fn the_path_of_an_address_is_a_prefix_of_names() {
        let prefix = |text: &str| {
            let address = RemoteAddress::read(text)?.expect("it names a store");
            RemoteStore::new(&address).map(|store| store.prefix)
        };
        assert_eq!(prefix("s3://backups").as_deref(), Ok(""));
        assert_eq!(prefix("gs://backups/").as_deref(), Ok(""));
        assert_eq!(prefix("s3://backups/shop/daily/").as_deref(), Ok("shop/daily/"));
        for text in ["s3://backups/../x", "gs://backups/./x", "s3://backups/a//b"] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }
}
