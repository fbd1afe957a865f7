//! Validated requests: the contents of a frame, with every length checked once.

use crate::{Frame, Opcode, Status};

/// One operation of a sub-document request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubdocSpec<'a> {
    /// Opcode byte of the operation. Multi-path requests also use those of Get, Set and Delete, for the whole document.
    pub opcode: u8,
    /// Path flags: 0x01 creates parents, 0x04 means an extended attribute, 0x10 expands macros.
    pub flags: u8,
    /// The path.
    pub path: &'a [u8],
    /// The value of a write.
    pub value: &'a [u8],
}

/// A client's request. Borrows from the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Read a document.
    Get,
    /// Read from a replica.
    GetReplica,
    /// Read the metadata, in format 1 or 2.
    GetMeta {
        /// Format of the response.
        version: u8,
    },
    /// Write a document; the opcode determines the condition.
    Store {
        /// Set, Add or Replace.
        opcode: Opcode,
        /// Flags of the document, opaque to the server.
        flags: u32,
        /// Expiry as the client sent it.
        expiry: u32,
        /// The new body.
        value: &'a [u8],
    },
    /// Store a version from another cluster, with its metadata.
    StoreVersion {
        /// SetWithMeta, AddWithMeta or DeleteWithMeta.
        opcode: Opcode,
        /// Flags of the document, opaque to the server.
        flags: u32,
        /// Expiry as a Unix time in seconds, 0 for never. For a deletion, the time of the deletion.
        expiry: u32,
        /// Revision: the number of changes of the document in the other cluster.
        rev: u64,
        /// The CAS of the version. The CAS of the frame is a precondition.
        cas: u64,
        /// A combination of the bits of [`version_option`].
        options: u32,
        /// Extended attributes, if the datatype indicates them, followed by the body.
        value: &'a [u8],
    },
    /// Extend a document; the opcode determines at which end.
    Extend {
        /// Append or Prepend.
        opcode: Opcode,
        /// The bytes to add.
        value: &'a [u8],
    },
    /// Delete a document.
    Delete,
    /// Increment or decrement a counter.
    Counter {
        /// Increment or Decrement.
        opcode: Opcode,
        /// The amount.
        delta: u64,
        /// Initial value of a missing counter.
        initial: u64,
        /// Expiry of a new counter; all bits set means that a missing counter is not created.
        expiry: u32,
    },
    /// Set the expiry.
    Touch {
        /// Expiry as the client sent it.
        expiry: u32,
        /// True if the response contains the document.
        fetch: bool,
    },
    /// Read and lock for some seconds; 0 means the default duration.
    GetLocked {
        /// Duration.
        seconds: u32,
    },
    /// Unlock; the CAS of the frame is the CAS of the lock.
    Unlock,
    /// Read paths of a document.
    Lookup {
        /// 1..=16 operations.
        specs: Vec<SubdocSpec<'a>>,
        /// Document flags.
        doc_flags: u8,
        /// True for a single operation in the short form, which has a short response too.
        single: bool,
    },
    /// Write paths of a document atomically.
    Mutate {
        /// 1..=16 operations.
        specs: Vec<SubdocSpec<'a>>,
        /// New expiry, if the request contains one.
        expiry: Option<u32>,
        /// New flags of the document, if the request contains them.
        flags: Option<u32>,
        /// Document flags.
        doc_flags: u8,
        /// True for a single operation in the short form, which has a short response too.
        single: bool,
    },
    /// Return the persisted and the current seqno of the vBucket.
    ObserveSeqno {
        /// The branch of history that the client last saw.
        vb_uuid: u64,
    },
    /// Return the persistence of keys: a list of vBuckets and keys.
    Observe {
        /// The list, not decoded, but checked for completeness.
        list: &'a [u8],
    },
    /// Respond once the seqno is persisted.
    SeqnoPersistence {
        /// The seqno to wait for.
        seqno: u64,
    },
    /// Read a random document of a collection.
    GetRandomKey {
        /// The collection.
        collection: u32,
    },
    /// Return keys of the vBucket, in order.
    GetKeys {
        /// Maximum number of keys.
        count: u32,
        /// The first key, with its collection prefix if the connection has negotiated collections.
        from: &'a [u8],
    },
    /// Start a range scan of the vBucket.
    RangeScanCreate {
        /// Options of the scan, as JSON.
        options: &'a [u8],
    },
    /// Continue a range scan. A limit of 0 means no limit.
    RangeScanContinue {
        /// The scan.
        uuid: [u8; 16],
        /// Maximum number of documents.
        items: u32,
        /// Maximum duration in milliseconds.
        milliseconds: u32,
        /// Number of bytes after which the scan pauses.
        bytes: u32,
    },
    /// Cancel a range scan.
    RangeScanCancel {
        /// The scan.
        uuid: [u8; 16],
    },
    /// Return the high seqnos of the vBuckets in a state.
    GetAllVbSeqnos {
        /// 1 active, 2 replica, 3 pending, 4 dead; `None` for any state that serves.
        state: Option<u32>,
        /// Limits the request to this collection.
        collection: Option<u32>,
    },
    /// Return the failover log of the vBucket.
    GetFailoverLog,
    /// Negotiate features.
    Hello {
        /// Feature codes, 16 bits each.
        features: &'a [u8],
    },
    /// List the SASL mechanisms.
    SaslListMechs,
    /// Start a SASL login.
    SaslAuth {
        /// Name of the mechanism.
        mechanism: &'a [u8],
        /// The client's first message.
        message: &'a [u8],
    },
    /// Continue a SASL login.
    SaslStep {
        /// The client's next message.
        message: &'a [u8],
    },
    /// Select a bucket.
    SelectBucket {
        /// The name.
        name: &'a [u8],
    },
    /// Return the error map, up to this version.
    GetErrorMap {
        /// The newest version that the client understands.
        version: u16,
    },
    /// Return the cluster map, if it is newer than the known version.
    GetClusterConfig {
        /// Epoch and revision of the client's map.
        known: Option<(i64, i64)>,
    },
    /// Return the collections manifest.
    GetCollectionsManifest,
    /// Return the ID of a collection, given as `scope.collection`.
    GetCollectionId {
        /// The path.
        path: &'a [u8],
    },
    /// Return the ID of a scope.
    GetScopeId {
        /// The scope, optionally followed by `.collection`.
        path: &'a [u8],
    },
    /// Return the statistics of a group.
    Stat {
        /// The group; empty for the general group.
        group: &'a [u8],
    },
    /// Open a DCP connection with the server as the producer.
    DcpOpen {
        /// The connection's name.
        name: &'a [u8],
        /// A combination of the bits of [`crate::dcp::open_flag`].
        flags: u32,
    },
    /// Ask the server to request a stream.
    DcpAddStream,
    /// Close the stream of the vBucket.
    DcpCloseStream,
    /// Request a stream of the vBucket.
    DcpStreamRequest {
        /// A combination of the bits of [`crate::dcp::stream_flag`].
        flags: u32,
        /// The last seqno that the client has.
        start: u64,
        /// The last seqno that the client requests.
        end: u64,
        /// The branch of the history that `start` belongs to; 0 for a client that has nothing.
        vb_uuid: u64,
        /// First and last seqno of the snapshot that contains `start`.
        snapshot: (u64, u64),
        /// The part of the vBucket that the client requests, as JSON, or empty.
        filter: &'a [u8],
    },
    /// Acknowledge processed bytes.
    DcpBufferAck {
        /// Bytes of messages, including their headers.
        bytes: u32,
    },
    /// Acknowledge that the client's copy of the vBucket contains everything up to a seqno.
    DcpSeqnoAcknowledged {
        /// The seqno up to which the requirements of the prepares are fulfilled.
        seqno: u64,
    },
    /// Change a setting of a DCP connection.
    DcpControl {
        /// The name of the setting.
        key: &'a [u8],
        /// The value of the setting.
        value: &'a [u8],
    },
    /// Do nothing.
    Noop,
    /// Return the server's version.
    Version,
    /// Close the connection.
    Quit,
}

/// Options of [`Request::StoreVersion`].
pub mod version_option {
    /// Required by buckets with conflict resolution by time, so that no client sends versions to them by mistake.
    pub const FORCE_ACCEPT: u32 = 0x02;
    /// The server generates a new CAS for the version.
    pub const REGENERATE_CAS: u32 = 0x04;
    /// The server stores the version without resolving conflicts.
    pub const SKIP_CONFLICT_RESOLUTION: u32 = 0x08;
    /// The deletion is an expiration.
    pub const IS_EXPIRATION: u32 = 0x10;
}

/// Reads big-endian fields in order. Each read returns `None` if bytes are missing.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        if self.0.len() < count {
            return None;
        }
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    fn uuid(&mut self) -> Option<[u8; 16]> {
        self.take(16)?.try_into().ok()
    }
}

/// Maximum number of operations in a sub-document request.
const SPECS_MAX: usize = 16;

/// Decodes the operations of a multi-path request: opcode, flags, path length and, for writes, value length.
fn specs<'a>(value: &'a [u8], writes: bool) -> Result<Vec<SubdocSpec<'a>>, Status> {
    let mut fields = Fields(value);
    let mut specs = Vec::new();
    while !fields.0.is_empty() {
        if specs.len() == SPECS_MAX {
            return Err(Status::InvalidCombo);
        }
        let spec = (|| {
            let (opcode, flags) = (fields.u8()?, fields.u8()?);
            let path_bytes = usize::from(fields.u16()?);
            let value_bytes = if writes { fields.u32()? as usize } else { 0 };
            Some(SubdocSpec {
                opcode,
                flags,
                path: fields.take(path_bytes)?,
                value: fields.take(value_bytes)?,
            })
        })();
        specs.push(spec.ok_or(Status::InvalidArguments)?);
    }
    if specs.is_empty() { Err(Status::InvalidCombo) } else { Ok(specs) }
}

/// Decodes the optional extras of a sub-document request, whose total length determines which are present. Returns
/// expiry and flags of a write, and the document flags, in this order.
fn mutation_options(
    extras: &mut Fields<'_>,
    writes: bool,
) -> Option<(Option<u32>, Option<u32>, u8)> {
    let length = extras.0.len();
    if !matches!((length, writes), (0 | 1, _) | (4 | 5 | 8 | 9, true)) {
        return None;
    }
    let expiry = if length >= 4 { Some(extras.u32()?) } else { None };
    let flags = if length >= 8 { Some(extras.u32()?) } else { None };
    let doc_flags = if length % 4 == 1 { extras.u8()? } else { 0 };
    Some((expiry, flags, doc_flags))
}

/// Decodes a single-path request. Its extras are path length, path flags and, optionally, expiry and document flags.
fn single<'a>(frame: &Frame<'a>, writes: bool) -> Option<Request<'a>> {
    let mut extras = Fields(frame.extras);
    let path_bytes = usize::from(extras.u16()?);
    let flags = extras.u8()?;
    let options = mutation_options(&mut extras, writes)?;
    let mut body = Fields(frame.value);
    let path = body.take(path_bytes)?;
    let specs = vec![SubdocSpec { opcode: frame.opcode_byte, flags, path, value: body.0 }];
    let (expiry, flags, doc_flags) = options;
    if writes {
        return Some(Request::Mutate { specs, expiry, flags, doc_flags, single: true });
    }
    body.0.is_empty().then_some(Request::Lookup { specs, doc_flags, single: true })
}

fn multi<'a>(frame: &Frame<'a>, writes: bool) -> Result<Request<'a>, Status> {
    let mut extras = Fields(frame.extras);
    let options = mutation_options(&mut extras, writes).ok_or(Status::InvalidArguments)?;
    let (expiry, flags, doc_flags) = options;
    let specs = specs(frame.value, writes)?;
    Ok(if writes {
        Request::Mutate { specs, expiry, flags, doc_flags, single: false }
    } else {
        Request::Lookup { specs, doc_flags, single: false }
    })
}

/// Decodes a request to store a version. After the four fields, the extras may contain options, and the length of
/// further metadata at the end of the value. The server ignores that metadata.
fn store_version<'a>(frame: &Frame<'a>, opcode: Opcode) -> Option<Request<'a>> {
    let mut extras = Fields(frame.extras);
    let (flags, expiry) = (extras.u32()?, extras.u32()?);
    let (rev, cas) = (extras.u64()?, extras.u64()?);
    let options = if extras.0.len() >= 4 { extras.u32()? } else { 0 };
    let more_bytes = if extras.0.is_empty() { 0 } else { usize::from(extras.u16()?) };
    let value = frame.value.get(..frame.value.len().checked_sub(more_bytes)?)?;
    extras.0.is_empty().then_some(Request::StoreVersion {
        opcode,
        flags,
        expiry,
        rev,
        cas,
        options,
        value,
    })
}

/// Returns true if `list` consists of complete entries: vBucket, key length, key.
fn is_observe_list(list: &[u8]) -> bool {
    let mut fields = Fields(list);
    while !fields.0.is_empty() {
        let entry = (|| {
            fields.u16()?;
            let key_bytes = usize::from(fields.u16()?);
            fields.take(key_bytes)
        })();
        if entry.is_none() {
            return false;
        }
    }
    !list.is_empty()
}

/// Validates the frame of a request. `collections` is true if keys contain a collection ID.
///
/// # Errors
/// The status of the response: [`Status::UnknownCommand`], or the error in the request.
pub fn parse<'a>(frame: &Frame<'a>, collections: bool) -> Result<Request<'a>, Status> {
    let Some(opcode) = frame.opcode() else { return Err(Status::UnknownCommand) };
    if opcode.addresses_document() {
        check_key(frame.key, collections)?;
    }
    match opcode {
        Opcode::SubdocMultiLookup => return multi(frame, false),
        Opcode::SubdocMultiMutation => return multi(frame, true),
        _ => {}
    }
    parse_simple(frame, opcode.loud().0).ok_or(Status::InvalidArguments)
}

fn check_key(key: &[u8], collections: bool) -> Result<(), Status> {
    let name = if collections {
        nacre_types::leb128_decode(key).ok_or(Status::InvalidArguments)?.1
    } else {
        key
    };
    let prefix = key.len() - name.len();
    let limit = nacre_types::name_bytes_max(prefix == 0 || key[0] == 0);
    if name.is_empty() || name.len() > limit {
        return Err(Status::InvalidArguments);
    }
    Ok(())
}

/// Decodes all opcodes except the multi-path ones, with one arm per opcode. Returns `None` if extras, key or value are
/// invalid for the opcode.
#[expect(clippy::too_many_lines, reason = "a table")]
fn parse_simple<'a>(frame: &Frame<'a>, opcode: Opcode) -> Option<Request<'a>> {
    let mut extras = Fields(frame.extras);
    let bare = frame.extras.is_empty() && frame.value.is_empty();
    let request = match opcode {
        Opcode::Get | Opcode::GetK => bare.then_some(Request::Get)?,
        Opcode::GetReplica => bare.then_some(Request::GetReplica)?,
        Opcode::GetMeta => Request::GetMeta { version: extras.u8().unwrap_or(1) },
        Opcode::Set | Opcode::Add | Opcode::Replace => Request::Store {
            opcode,
            flags: extras.u32()?,
            expiry: extras.u32()?,
            value: frame.value,
        },
        Opcode::SetWithMeta | Opcode::AddWithMeta | Opcode::DeleteWithMeta => {
            return store_version(frame, opcode);
        }
        Opcode::Append | Opcode::Prepend => Request::Extend { opcode, value: frame.value },
        Opcode::Delete => bare.then_some(Request::Delete)?,
        Opcode::Increment | Opcode::Decrement => Request::Counter {
            opcode,
            delta: extras.u64()?,
            initial: extras.u64()?,
            expiry: extras.u32()?,
        },
        Opcode::Touch => Request::Touch { expiry: extras.u32()?, fetch: false },
        Opcode::GetAndTouch => Request::Touch { expiry: extras.u32()?, fetch: true },
        Opcode::GetLocked => {
            Request::GetLocked { seconds: if frame.extras.is_empty() { 0 } else { extras.u32()? } }
        }
        Opcode::UnlockKey => bare.then_some(Request::Unlock)?,
        Opcode::SubdocGet | Opcode::SubdocExists | Opcode::SubdocGetCount => {
            return single(frame, false);
        }
        Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocDelete
        | Opcode::SubdocReplace
        | Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayInsert
        | Opcode::SubdocArrayAddUnique
        | Opcode::SubdocCounter => return single(frame, true),
        Opcode::ObserveSeqno => {
            return (frame.extras.is_empty() && frame.value.len() == 8)
                .then(|| Fields(frame.value).u64())
                .flatten()
                .map(|vb_uuid| Request::ObserveSeqno { vb_uuid });
        }
        Opcode::Observe => {
            return is_observe_list(frame.value).then_some(Request::Observe { list: frame.value });
        }
        Opcode::GetRandomKey => Request::GetRandomKey {
            collection: if frame.extras.is_empty() { 0 } else { extras.u32()? },
        },
        Opcode::GetKeys => Request::GetKeys { count: extras.u32()?, from: frame.key },
        Opcode::RangeScanCreate => Request::RangeScanCreate { options: frame.value },
        Opcode::RangeScanContinue => Request::RangeScanContinue {
            uuid: extras.uuid()?,
            items: extras.u32()?,
            milliseconds: extras.u32()?,
            bytes: extras.u32()?,
        },
        Opcode::RangeScanCancel => Request::RangeScanCancel { uuid: extras.uuid()? },
        Opcode::SeqnoPersistence => Request::SeqnoPersistence { seqno: extras.u64()? },
        Opcode::GetAllVbSeqnos => Request::GetAllVbSeqnos {
            state: if frame.extras.is_empty() { None } else { Some(extras.u32()?) },
            collection: if extras.0.is_empty() { None } else { Some(extras.u32()?) },
        },
        Opcode::GetFailoverLog | Opcode::DcpGetFailoverLog => Request::GetFailoverLog,
        Opcode::DcpOpen => {
            let _reserved = extras.u32()?;
            Request::DcpOpen { name: frame.key, flags: extras.u32()? }
        }
        Opcode::DcpAddStream => Request::DcpAddStream,
        Opcode::DcpCloseStream => bare.then_some(Request::DcpCloseStream)?,
        Opcode::DcpStreamRequest => {
            let (flags, _reserved) = (extras.u32()?, extras.u32()?);
            Request::DcpStreamRequest {
                flags,
                start: extras.u64()?,
                end: extras.u64()?,
                vb_uuid: extras.u64()?,
                snapshot: (extras.u64()?, extras.u64()?),
                filter: frame.value,
            }
        }
        Opcode::DcpBufferAck => Request::DcpBufferAck { bytes: extras.u32()? },
        Opcode::DcpSeqnoAcknowledged => Request::DcpSeqnoAcknowledged { seqno: extras.u64()? },
        Opcode::DcpControl => Request::DcpControl { key: frame.key, value: frame.value },
        Opcode::DcpNoop => (bare && frame.key.is_empty()).then_some(Request::Noop)?,
        Opcode::Hello => {
            Request::Hello { features: frame.value.len().is_multiple_of(2).then_some(frame.value)? }
        }
        Opcode::SaslListMechs => Request::SaslListMechs,
        Opcode::SaslAuth => Request::SaslAuth { mechanism: frame.key, message: frame.value },
        Opcode::SaslStep => Request::SaslStep { message: frame.value },
        Opcode::SelectBucket => Request::SelectBucket { name: frame.key },
        Opcode::GetErrorMap => Request::GetErrorMap { version: Fields(frame.value).u16()? },
        Opcode::GetClusterConfig => Request::GetClusterConfig {
            known: match frame.extras.len() {
                0 => None,
                _ => Some((extras.u64()? as i64, extras.u64()? as i64)),
            },
        },
        Opcode::GetCollectionsManifest => Request::GetCollectionsManifest,
        // Older clients send the path in the key.
        Opcode::GetCollectionId => Request::GetCollectionId { path: path_of(frame) },
        Opcode::GetScopeId => Request::GetScopeId { path: path_of(frame) },
        Opcode::Stat => Request::Stat { group: frame.key },
        Opcode::Noop => (bare && frame.key.is_empty()).then_some(Request::Noop)?,
        Opcode::SubdocReplaceBodyWithXattr => return None,
        Opcode::Version => Request::Version,
        Opcode::Quit => Request::Quit,
        quiet_or_multi => unreachable!("{quiet_or_multi:?} was resolved before"),
    };
    extras_consumed(frame, &extras, opcode).then_some(request)
}

fn path_of<'a>(frame: &Frame<'a>) -> &'a [u8] {
    if frame.value.is_empty() { frame.key } else { frame.value }
}

/// Checks that no extras are left. Requests on documents and streams refuse unexpected extras, so that the server
/// ignores no part of a request.
fn extras_consumed(frame: &Frame<'_>, rest: &Fields<'_>, opcode: Opcode) -> bool {
    use Opcode::{DcpBufferAck, DcpControl, DcpOpen, DcpSeqnoAcknowledged, DcpStreamRequest};
    let strict = opcode.addresses_document()
        || matches!(opcode, DcpOpen | DcpStreamRequest | DcpBufferAck | DcpControl)
        || matches!(opcode, DcpSeqnoAcknowledged);
    !strict || rest.0.is_empty() || frame.extras.is_empty()
}
