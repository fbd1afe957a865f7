//! Opcodes that the server supports.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The operation that a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $code,)* }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            /// Returns the opcode with this byte, or `None`.
            pub fn from_byte(byte: u8) -> Option<Opcode> {
                const BY_BYTE: [Option<Opcode>; 256] = {
                    let mut by_byte = [None; 256];
                    $(by_byte[$code] = Some(Opcode::$name);)*
                    by_byte
                };
                BY_BYTE[usize::from(byte)]
            }
        }
    };
}

opcodes! {
    /// Read a document.
    Get = 0x00,
    /// Write a document.
    Set = 0x01,
    /// Write a document that must not exist.
    Add = 0x02,
    /// Write a document that must exist.
    Replace = 0x03,
    /// Delete a document.
    Delete = 0x04,
    /// Increment a counter.
    Increment = 0x05,
    /// Decrement a counter.
    Decrement = 0x06,
    /// Close the connection after a response.
    Quit = 0x07,
    /// Read; respond only to a hit.
    GetQ = 0x09,
    /// Do nothing: a ping.
    Noop = 0x0a,
    /// The server's version.
    Version = 0x0b,
    /// Read, echoing the key.
    GetK = 0x0c,
    /// Read, echoing the key; respond only to a hit.
    GetKQ = 0x0d,
    /// Append bytes to a document.
    Append = 0x0e,
    /// Prepend bytes to a document.
    Prepend = 0x0f,
    /// Statistics.
    Stat = 0x10,
    /// Write; respond only to a failure.
    SetQ = 0x11,
    /// Add; respond only to a failure.
    AddQ = 0x12,
    /// Replace; respond only to a failure.
    ReplaceQ = 0x13,
    /// Delete; respond only to a failure.
    DeleteQ = 0x14,
    /// Increment; respond only to a failure.
    IncrementQ = 0x15,
    /// Decrement; respond only to a failure.
    DecrementQ = 0x16,
    /// Close the connection without a response.
    QuitQ = 0x17,
    /// Append; respond only to a failure.
    AppendQ = 0x19,
    /// Prepend; respond only to a failure.
    PrependQ = 0x1a,
    /// Set the expiry.
    Touch = 0x1c,
    /// Read and set the expiry.
    GetAndTouch = 0x1d,
    /// Read and set the expiry; respond only to a hit.
    GetAndTouchQ = 0x1e,
    /// Negotiate features.
    Hello = 0x1f,
    /// List the SASL mechanisms.
    SaslListMechs = 0x20,
    /// Start a SASL login.
    SaslAuth = 0x21,
    /// Continue a SASL login.
    SaslStep = 0x22,
    /// Return the high seqno of each vBucket.
    GetAllVbSeqnos = 0x48,
    /// DCP: open a DCP connection.
    DcpOpen = 0x50,
    /// DCP: ask the other end to request a stream.
    DcpAddStream = 0x51,
    /// DCP: close the stream of a vBucket.
    DcpCloseStream = 0x52,
    /// DCP: request the stream of a vBucket.
    DcpStreamRequest = 0x53,
    /// DCP: return the failover log of a vBucket.
    DcpGetFailoverLog = 0x54,
    /// DCP: keep-alive. The server sends it, and the client responds.
    DcpNoop = 0x5c,
    /// DCP: acknowledge the bytes that the client has processed.
    DcpBufferAck = 0x5d,
    /// DCP: acknowledge the seqno up to which a replica has prepares.
    DcpSeqnoAcknowledged = 0x61,
    /// DCP: change a setting of the connection.
    DcpControl = 0x5e,
    /// Read from a replica.
    GetReplica = 0x83,
    /// Select the bucket of the connection.
    SelectBucket = 0x89,
    /// Return the persisted and the current seqno of a vBucket.
    ObserveSeqno = 0x91,
    /// Return the persistence of single keys.
    Observe = 0x92,
    /// Read and lock a document.
    GetLocked = 0x94,
    /// Unlock a document.
    UnlockKey = 0x95,
    /// Return the failover log of a vBucket.
    GetFailoverLog = 0x96,
    /// Read a document's metadata.
    GetMeta = 0xa0,
    /// Read a document's metadata; respond only to a hit.
    GetMetaQ = 0xa1,
    /// Store a version from another cluster.
    SetWithMeta = 0xa2,
    /// Store a version from another cluster; respond only to a failure.
    SetWithMetaQ = 0xa3,
    /// Store a version of a document that must not exist.
    AddWithMeta = 0xa4,
    /// Store a version of a document that must not exist; respond only to a failure.
    AddWithMetaQ = 0xa5,
    /// Store a deletion from another cluster.
    DeleteWithMeta = 0xa8,
    /// Store a deletion from another cluster; respond only to a failure.
    DeleteWithMetaQ = 0xa9,
    /// Return the cluster map.
    GetClusterConfig = 0xb5,
    /// Read a random document.
    GetRandomKey = 0xb6,
    /// Wait until a seqno is persisted.
    SeqnoPersistence = 0xb7,
    /// List the keys of a vBucket.
    GetKeys = 0xb8,
    /// Return the collections manifest.
    GetCollectionsManifest = 0xba,
    /// Return the ID of a collection.
    GetCollectionId = 0xbb,
    /// Return the ID of a scope.
    GetScopeId = 0xbc,
    /// Sub-document: read a path.
    SubdocGet = 0xc5,
    /// Sub-document: check whether a path exists.
    SubdocExists = 0xc6,
    /// Sub-document: add a field.
    SubdocDictAdd = 0xc7,
    /// Sub-document: write a field.
    SubdocDictUpsert = 0xc8,
    /// Sub-document: remove a path.
    SubdocDelete = 0xc9,
    /// Sub-document: replace a path.
    SubdocReplace = 0xca,
    /// Sub-document: append to an array.
    SubdocArrayPushLast = 0xcb,
    /// Sub-document: prepend to an array.
    SubdocArrayPushFirst = 0xcc,
    /// Sub-document: insert into an array.
    SubdocArrayInsert = 0xcd,
    /// Sub-document: append a value to an array unless the array contains it.
    SubdocArrayAddUnique = 0xce,
    /// Sub-document: increment or decrement a number.
    SubdocCounter = 0xcf,
    /// Sub-document: several reads.
    SubdocMultiLookup = 0xd0,
    /// Sub-document: several writes.
    SubdocMultiMutation = 0xd1,
    /// Sub-document, in multi-path mutations only: replace the body with the value of an attribute.
    SubdocReplaceBodyWithXattr = 0xd3,
    /// Sub-document: count the elements at a path.
    SubdocGetCount = 0xd2,
    /// Start a key range scan of a vBucket.
    RangeScanCreate = 0xda,
    /// Continue a range scan.
    RangeScanContinue = 0xdb,
    /// Cancel a range scan.
    RangeScanCancel = 0xdc,
    /// Return the error map.
    GetErrorMap = 0xfe,
}

impl Opcode {
    /// Returns the non-quiet variant of the opcode, and whether the opcode is quiet.
    pub fn loud(self) -> (Opcode, bool) {
        use Opcode::*;
        let twin = match self {
            GetQ => Get,
            GetKQ => GetK,
            SetQ => Set,
            AddQ => Add,
            ReplaceQ => Replace,
            DeleteQ => Delete,
            IncrementQ => Increment,
            DecrementQ => Decrement,
            QuitQ => Quit,
            AppendQ => Append,
            PrependQ => Prepend,
            GetAndTouchQ => GetAndTouch,
            GetMetaQ => GetMeta,
            SetWithMetaQ => SetWithMeta,
            AddWithMetaQ => AddWithMeta,
            DeleteWithMetaQ => DeleteWithMeta,
            loud => return (loud, false),
        };
        (twin, true)
    }

    /// Returns true if responses to such requests may be reordered, provided that client and server have negotiated
    /// this. All other requests change or return the state of the connection.
    pub fn may_be_reordered(self) -> bool {
        use Opcode::*;
        self.addresses_document()
            || matches!(self, RangeScanCreate | RangeScanContinue)
            // Any connection may send these. A client that looks for another node must not wait for its writes on
            // this node.
            || matches!(self, GetClusterConfig | GetCollectionsManifest | GetCollectionId | GetScopeId)
    }

    /// Returns true if the key of the request names a document, and so contains a collection ID if the connection has
    /// negotiated collections.
    pub fn addresses_document(self) -> bool {
        use Opcode::*;
        matches!(
            self.loud().0,
            Get | GetK
                | Set
                | Add
                | Replace
                | Delete
                | Increment
                | Decrement
                | Append
                | Prepend
                | Touch
                | GetAndTouch
                | GetReplica
                | GetLocked
                | UnlockKey
                | GetMeta
                | SetWithMeta
                | AddWithMeta
                | DeleteWithMeta
                | SubdocGet
                | SubdocExists
                | SubdocDictAdd
                | SubdocDictUpsert
                | SubdocDelete
                | SubdocReplace
                | SubdocArrayPushLast
                | SubdocArrayPushFirst
                | SubdocArrayInsert
                | SubdocArrayAddUnique
                | SubdocCounter
                | SubdocMultiLookup
                | SubdocMultiMutation
                | SubdocGetCount
        )
    }
}
