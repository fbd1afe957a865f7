//! Opcodes that the server knows.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $code,)* }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            /// The opcode with this byte, or `None`.
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
    /// Add to a counter.
    Increment = 0x05,
    /// Subtract from a counter.
    Decrement = 0x06,
    /// Close the connection, after an answer.
    Quit = 0x07,
    /// Read; answer only a hit.
    GetQ = 0x09,
    /// Do nothing: a ping.
    Noop = 0x0a,
    /// The server's version.
    Version = 0x0b,
    /// Read, echoing the key.
    GetK = 0x0c,
    /// Read, echoing the key; answer only a hit.
    GetKQ = 0x0d,
    /// Put bytes behind a document.
    Append = 0x0e,
    /// Put bytes before a document.
    Prepend = 0x0f,
    /// Statistics.
    Stat = 0x10,
    /// Write; answer only a failure.
    SetQ = 0x11,
    /// Add; answer only a failure.
    AddQ = 0x12,
    /// Replace; answer only a failure.
    ReplaceQ = 0x13,
    /// Delete; answer only a failure.
    DeleteQ = 0x14,
    /// Increment; answer only a failure.
    IncrementQ = 0x15,
    /// Decrement; answer only a failure.
    DecrementQ = 0x16,
    /// Close the connection without an answer.
    QuitQ = 0x17,
    /// Append; answer only a failure.
    AppendQ = 0x19,
    /// Prepend; answer only a failure.
    PrependQ = 0x1a,
    /// Set the expiry.
    Touch = 0x1c,
    /// Read and set the expiry.
    GetAndTouch = 0x1d,
    /// Read and set the expiry; answer only a hit.
    GetAndTouchQ = 0x1e,
    /// Agree on features.
    Hello = 0x1f,
    /// List the login mechanisms.
    SaslListMechs = 0x20,
    /// Begin a login.
    SaslAuth = 0x21,
    /// Go on with a login.
    SaslStep = 0x22,
    /// The high seqno of each vBucket.
    GetAllVbSeqnos = 0x48,
    /// DCP: make the connection a stream of history.
    DcpOpen = 0x50,
    /// DCP: have the other end ask for a stream.
    DcpAddStream = 0x51,
    /// DCP: end the stream of a vBucket.
    DcpCloseStream = 0x52,
    /// DCP: begin the stream of a vBucket.
    DcpStreamRequest = 0x53,
    /// DCP: the branches of a vBucket's history.
    DcpGetFailoverLog = 0x54,
    /// DCP: show that the connection lives. The server asks, the client answers.
    DcpNoop = 0x5c,
    /// DCP: bytes that the client has taken in.
    DcpBufferAck = 0x5d,
    /// Say how far a copy has come.
    DcpSeqnoAcknowledged = 0x61,
    /// DCP: a setting of the connection.
    DcpControl = 0x5e,
    /// Read from a replica.
    GetReplica = 0x83,
    /// Choose the bucket of the connection.
    SelectBucket = 0x89,
    /// Persisted and current seqno of a vBucket.
    ObserveSeqno = 0x91,
    /// Persistence of single keys.
    Observe = 0x92,
    /// Read and lock.
    GetLocked = 0x94,
    /// Unlock.
    UnlockKey = 0x95,
    /// The branches of a vBucket's history.
    GetFailoverLog = 0x96,
    /// Read a document's metadata.
    GetMeta = 0xa0,
    /// Read a document's metadata; answer only a hit.
    GetMetaQ = 0xa1,
    /// Take over a version from another cluster.
    SetWithMeta = 0xa2,
    /// Take over a version; answer only a failure.
    SetWithMetaQ = 0xa3,
    /// Take over a version of a document that must not exist.
    AddWithMeta = 0xa4,
    /// Take over a version of a document that must not exist; answer only a failure.
    AddWithMetaQ = 0xa5,
    /// Take over a deletion from another cluster.
    DeleteWithMeta = 0xa8,
    /// Take over a deletion; answer only a failure.
    DeleteWithMetaQ = 0xa9,
    /// The cluster map.
    GetClusterConfig = 0xb5,
    /// Read any document.
    GetRandomKey = 0xb6,
    /// Wait until a seqno is persisted.
    SeqnoPersistence = 0xb7,
    /// List keys of a vBucket.
    GetKeys = 0xb8,
    /// The collections manifest.
    GetCollectionsManifest = 0xba,
    /// The number of a collection.
    GetCollectionId = 0xbb,
    /// The number of a scope.
    GetScopeId = 0xbc,
    /// Sub-document: read a path.
    SubdocGet = 0xc5,
    /// Sub-document: does a path exist.
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
    /// Sub-document: append to an array what it does not contain.
    SubdocArrayAddUnique = 0xce,
    /// Sub-document: add to a number.
    SubdocCounter = 0xcf,
    /// Sub-document: several reads.
    SubdocMultiLookup = 0xd0,
    /// Sub-document: several writes.
    SubdocMultiMutation = 0xd1,
    /// Sub-document, among several writes only: make the body what an attribute holds.
    SubdocReplaceBodyWithXattr = 0xd3,
    /// Sub-document: count the elements of a path.
    SubdocGetCount = 0xd2,
    /// Begin to scan a vBucket by key.
    RangeScanCreate = 0xda,
    /// Read on in a scan.
    RangeScanContinue = 0xdb,
    /// End a scan.
    RangeScanCancel = 0xdc,
    /// The error map.
    GetErrorMap = 0xfe,
}

impl Opcode {
    /// The loud twin of a quiet opcode, and whether `self` was quiet.
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

    /// Returns true if answers to such requests may come in another order, where client and server have agreed on that.
    /// All others change or show the state of the connection.
    pub fn may_be_reordered(self) -> bool {
        use Opcode::*;
        self.addresses_document()
            || matches!(self, RangeScanCreate | RangeScanContinue)
            // What every connection is told. A client that looks for another node must not wait for this one's writes.
            || matches!(self, GetClusterConfig | GetCollectionsManifest | GetCollectionId | GetScopeId)
    }

    /// Returns true if the key of the request names a document, and so carries a collection id where negotiated.
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
