//! Features that the client and the server negotiate with HELLO.

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// A capability that a client may request and the server may grant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Feature { $($(#[$doc])* $name = $code,)* }

        impl Feature {
            fn from_code(code: u16) -> Option<Feature> {
                match code {
                    $($code => Some(Feature::$name),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    /// Responses to mutations contain the vBucket UUID and the seqno.
    MutationSeqno = 0x04,
    /// Sub-document operations may use extended attributes.
    Xattr = 0x06,
    /// The server may use the extended statuses, with JSON error bodies.
    Xerror = 0x07,
    /// The client selects the bucket with SELECT_BUCKET.
    SelectBucket = 0x08,
    /// Values may be compressed with Snappy.
    Snappy = 0x0a,
    /// The server uses the JSON datatype bit.
    Json = 0x0b,
    /// The server may send requests.
    Duplex = 0x0c,
    /// The server pushes the cluster map.
    ClustermapPush = 0x0d,
    /// The server may reorder responses.
    UnorderedExecution = 0x0e,
    /// Responses contain the time spent in the server.
    Tracing = 0x0f,
    /// Requests may contain framing extras.
    AltRequest = 0x10,
    /// The client may request durable writes.
    SyncReplication = 0x11,
    /// Keys contain a collection ID.
    Collections = 0x12,
    /// Values of any response may be compressed with Snappy.
    SnappyEverywhere = 0x13,
    /// Writes may keep the document's expiry.
    PreserveExpiry = 0x14,
    /// Virtual attributes other than `$document`.
    VirtualXattrs = 0x15,
    /// Sub-document writes may create tombstones.
    CreateAsDeleted = 0x17,
    /// Macros may name parts of `$document`.
    DocumentMacros = 0x18,
    /// Sub-document writes may replace the body with an attribute.
    ReplaceBodyWithXattr = 0x19,
    /// Responses contain the units that the request has used.
    Units = 0x1a,
    /// Sub-document reads may ask for a replica.
    SubdocReplicaRead = 0x1c,
    /// GET_CLUSTER_CONFIG may name the version that the client has.
    ConfigWithKnownVersion = 0x1d,
    /// NOT_MY_VBUCKET omits a map that the client already has.
    DedupeNotMyVbucket = 0x1e,
    /// The server pushes the version of the cluster map.
    ClustermapPushBrief = 0x1f,
    /// A sub-document request may name several attributes.
    SubdocSeveralXattrs = 0x20,
    /// Attributes may contain binary data.
    SubdocBinaryXattr = 0x21,
    /// Range scans may return attributes.
    RangeScanXattrs = 0x22,
    /// The backfill of a DCP stream may omit deletions.
    DcpSkipDeletes = 0x26,
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// Returns the set of `features`.
    pub fn of(features: &[Feature]) -> Features {
        Features(features.iter().fold(0, |bits, feature| bits | 1 << *feature as u16))
    }

    /// Returns the features in a HELLO's value (a list of 16-bit codes) that are in `granted`, in the client's order.
    pub fn negotiate(asked: &[u8], granted: Features) -> Vec<Feature> {
        let mut agreed: Vec<Feature> = asked
            .chunks_exact(2)
            .filter_map(|code| Feature::from_code(u16::from_be_bytes([code[0], code[1]])))
            .filter(|feature| granted.has(*feature))
            .collect();
        let mut seen = Features::default();
        agreed.retain(|feature| {
            let fresh = !seen.has(*feature);
            seen.0 |= 1 << *feature as u16;
            fresh
        });
        agreed
    }

    /// Returns true if `feature` is in the set.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u16 != 0
    }
}
