//! The component: the search service with the blobs of its deployment.

use crate::blobs::Blobs;
use crate::service::{Platform, SearchService};
use nacre_plugin::blob;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of blobs that the host returns per call.
const LIST_LIMIT: u32 = 1000;

/// The blobs of the deployment. If its disk fails, the host aborts the call, so that no method returns such an error.
#[derive(Debug)]
struct DeploymentBlobs;

/// The platform of the component.
pub struct Sandbox;

impl Platform for Sandbox {
    fn blobs() -> Arc<dyn Blobs> {
        Arc::new(DeploymentBlobs)
    }
}

/// The index of a partition, as a component.
pub type SearchComponent = SearchService<Sandbox>;

fn absent(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no blob {name}"))
}

impl Blobs for DeploymentBlobs {
    fn create(&self, name: &str) -> io::Result<()> {
        if blob::stat(name).is_some_and(|info| info.sealed) {
            let text = format!("the blob {name} is sealed");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        blob::create(name);
        Ok(())
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        blob::append(name, bytes);
        Ok(())
    }

    fn seal(&self, name: &str) -> io::Result<()> {
        blob::seal(name);
        Ok(())
    }

    fn len(&self, name: &str) -> io::Result<Option<u64>> {
        Ok(blob::stat(name).filter(|info| info.sealed).map(|info| info.length))
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let length = u32::try_from(range.end - at).unwrap_or(u32::MAX);
            let part = blob::read(name, at, length).ok_or_else(|| absent(name))?;
            if part.is_empty() {
                let text = format!("{name} ends before {range:?}");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            at += part.len() as u64;
            // Most reads consist of one part, which is returned without copying.
            if bytes.is_empty() {
                bytes = part;
            } else {
                bytes.extend(part);
            }
        }
        Ok(bytes)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        blob::delete(name);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let found = blob::list("", &after, LIST_LIMIT);
            let Some(last) = found.last() else { return Ok(names) };
            after.clone_from(&last.name);
            names.extend(found.into_iter().filter(|info| info.sealed).map(|info| info.name));
        }
    }
}

nacre_plugin::export!(SearchComponent);
