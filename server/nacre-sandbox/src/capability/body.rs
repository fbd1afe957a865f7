//! Bodies of documents for replies.

use nacre_types::Document;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The body of a document, uncompressed and without extended attributes. Clones share it.
///
/// A body that this node stores is not copied until it is written to an output.
#[derive(Clone)]
pub struct Body(Bytes);

#[derive(Clone)]
enum Bytes {
    Own(Arc<Vec<u8>>),
    Stored(Document),
}

impl Body {
    /// Returns the bytes, copied unless this is their only owner.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Bytes::Own(bytes) => Arc::unwrap_or_clone(bytes),
            Bytes::Stored(document) => document.body().to_vec(),
        }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::Stored(document) => document.body(),
        }
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::from(Vec::new())
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body(Bytes::Own(Arc::new(bytes)))
    }
}

impl From<Document> for Body {
    fn from(document: Document) -> Body {
        Body(Bytes::Stored(document))
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        **self == **other
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.len())
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Body, D::Error> {
        serde_bytes::ByteBuf::deserialize(deserializer).map(|bytes| bytes.into_vec().into())
    }
}
