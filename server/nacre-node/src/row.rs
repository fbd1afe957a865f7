//! The rows in which a node keeps who it is and what is agreed, as JSON.
//!
//! Long rows are compressed. The map of a bucket of 1024 vBuckets takes about 32 KB otherwise, and more while it moves, which sled
//! keeps in a file of its own: each change would wait until that and its directory are synced, too.

use nacre_store::Write;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;

pub const IDENTITY: &[u8] = b"identity";
pub const POSITION: &[u8] = b"position";
pub const CLUSTER: &[u8] = b"cluster";
pub const USERS: &[u8] = b"users";
pub const GROUPS: &[u8] = b"groups";
pub const PASSWORD_POLICY: &[u8] = b"password-policy";
pub const CLEAN: &[u8] = b"clean";
/// Followed by the identity of a store that was created.
pub const CREATED: &[u8] = b"created/";

/// Bytes of JSON that are kept as they are.
const PLAIN_BYTES_MAX: usize = 8 << 10;
/// What a compressed row begins with, as no JSON does.
const COMPRESSED: u8 = 0;
/// Bytes of JSON that a row may hold.
const JSON_BYTES_MAX: usize = 1 << 30;

/// The row `row` with `value`.
pub fn write(row: &[u8], value: &impl Serialize) -> Write {
    let json = serde_json::to_vec(value).expect("the agreed state is plain data with text keys");
    (row.to_vec(), Some(if json.len() > PLAIN_BYTES_MAX { compressed(json) } else { json }))
}

fn compressed(json: Vec<u8>) -> Vec<u8> {
    match snap::raw::Encoder::new().compress_vec(&json) {
        Ok(bytes) => [&[COMPRESSED], &bytes[..]].concat(),
        // Too long for it.
        Err(_) => json,
    }
}

/// What a row holds; `None` when it is damaged.
pub fn read<T: DeserializeOwned>(stored: &[u8]) -> Option<T> {
    let json = match stored.split_first() {
        Some((&COMPRESSED, bytes)) => Cow::Owned(plain(bytes)?),
        _ => Cow::Borrowed(stored),
    };
    serde_json::from_slice(&json).ok()
}

/// The length that it claims is believed up to a limit only.
fn plain(compressed: &[u8]) -> Option<Vec<u8>> {
    let length = snap::raw::decompress_len(compressed).ok()?;
    (length <= JSON_BYTES_MAX).then(|| snap::raw::Decoder::new().decompress_vec(compressed).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_cluster::{BucketSettings, Chain, Change, Cluster};
    use nacre_types::NodeId;

    /// Where a store begins to keep a value in a file of its own. Source: sled.
    const FILE_BYTES_MIN: usize = 32 << 10;

    /// A cluster with a bucket whose vBuckets are all about to move.
    fn cluster() -> Cluster {
        let mut cluster = Cluster::new("c".repeat(32));
        let settings = BucketSettings { replicas: 2, ..BucketSettings::default() };
        let bucket = Change::CreateBucket { name: "b".into(), uuid: "b".repeat(32), settings };
        cluster.apply(&bucket).unwrap();
        let copies = |first: u64| (first..first + 3).map(|id| Some(NodeId(1 + id % 5))).collect();
        let moving = |number: u64| Chain {
            term: 10 + number % 7,
            copies: copies(number),
            next: copies(number + 1),
            held: number.is_multiple_of(32),
        };
        cluster.buckets.get_mut("b").unwrap().chains = (0..1024).map(moving).collect();
        cluster
    }

    #[test]
    fn the_map_of_a_bucket_stays_small_and_is_read_again() {
        let cluster = cluster();
        let json = serde_json::to_vec(&cluster).unwrap();
        assert!(json.len() > FILE_BYTES_MIN, "{} bytes of JSON", json.len());
        let (_, stored) = write(CLUSTER, &cluster);
        let stored = stored.unwrap();
        assert!(stored.len() < FILE_BYTES_MIN / 2, "{} bytes", stored.len());
        let again: Cluster = read(&stored).unwrap();
        assert_eq!(serde_json::to_vec(&again).unwrap(), json);
        let before: Cluster = read(&json).unwrap();
        assert_eq!(serde_json::to_vec(&before).unwrap(), json, "as it was stored before");
    }

    #[test]
    fn short_rows_are_text_and_damaged_ones_are_told() {
        assert_eq!(write(USERS, &["ann"]), (USERS.to_vec(), Some(b"[\"ann\"]".to_vec())));
        assert_eq!(read::<Vec<String>>(b"[\"ann\"]"), Some(vec!["ann".to_owned()]));
        let (_, stored) = write(CLUSTER, &cluster());
        let stored = stored.unwrap();
        for cut in [0, 1, 2, stored.len() / 2, stored.len() - 1] {
            assert!(read::<Cluster>(&stored[..cut]).is_none(), "{cut} bytes");
        }
        // Claims 4 GiB - 1.
        assert!(read::<Cluster>(&[COMPRESSED, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]).is_none());
    }
}
