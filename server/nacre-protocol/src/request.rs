//! Requests, validated once: the content of a frame, with every length checked.

use crate::{Frame, Opcode, Status};

/// One operation of a sub-document request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubdocSpec<'a> {
    /// Opcode byte of the operation; multi-path requests also use those of Get, Set and Delete for the whole document.
    pub opcode: u8,
    /// Path flags: 0x01 create parents, 0x04 extended attribute, 0x10 expand macros.
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
    /// Read from a replica copy.
    GetReplica,
    /// Read the metadata, in format 1 or 2.
    GetMeta {
        /// Format of the answer.
        version: u8,
    },
    /// Write a document; the opcode says under which condition.
    Store {
        /// Set, Add or Replace.
        opcode: Opcode,
        /// Opaque to the server.
        flags: u32,
        /// Expiry as the client sent it.
        expiry: u32,
        /// The new body.
        value: &'a [u8],
    },
    /// Take over a version from elsewhere, with its metadata.
    StoreVersion {
        /// SetWithMeta, AddWithMeta or DeleteWithMeta.
        opcode: Opcode,
        /// Opaque to the server.
        flags: u32,
        /// Absolute Unix seconds, 0 for never; of a deletion, when it happened.
        expiry: u32,
        /// Number of changes of the document there.
        rev: u64,
        /// The version's CAS; that of the frame is a precondition.
        cas: u64,
        /// A combination of the bits of [`version_option`].
        options: u32,
        /// Attributes, if the datatype says so, and body.
        value: &'a [u8],
    },
    /// Extend a document; the opcode says at which end.
    Extend {
        /// Append or Prepend.
        opcode: Opcode,
        /// The bytes to add.
        value: &'a [u8],
    },
    /// Delete a document.
    Delete,
    /// Add to or subtract from a counter.
    Counter {
        /// Increment or Decrement.
        opcode: Opcode,
        /// By how much.
        delta: u64,
        /// Value of a missing counter.
        initial: u64,
        /// Expiry of a new counter; all ones: do not create one.
        expiry: u32,
    },
    /// Set the expiry.
    Touch {
        /// Expiry as the client sent it.
        expiry: u32,
        /// Also answer with the document.
        fetch: bool,
    },
    /// Read and lock for some seconds; 0 is the default time.
    GetLocked {
        /// Duration.
        seconds: u32,
    },
    /// Unlock; the CAS of the frame is the lock's.
    Unlock,
    /// Read paths of a document.
    Lookup {
        /// 1..=16 operations.
        specs: Vec<SubdocSpec<'a>>,
        /// Document flags.
        doc_flags: u8,
        /// One operation in the short form, whose answer is short too.
        single: bool,
    },
    /// Write paths of a document, all or none.
    Mutate {
        /// 1..=16 operations.
        specs: Vec<SubdocSpec<'a>>,
        /// New expiry, if one was given.
        expiry: Option<u32>,
        /// New flags of the document, if some were given.
        flags: Option<u32>,
        /// Document flags.
        doc_flags: u8,
        /// One operation in the short form, whose answer is short too.
        single: bool,
    },
    /// Persisted and current seqno of the vBucket.
    ObserveSeqno {
        /// The branch of history that the client knows.
        vb_uuid: u64,
    },
    /// Persistence of keys: a list of vBucket and key.
    Observe {
        /// The list, undecoded but checked to be whole.
        list: &'a [u8],
    },
    /// Answer once the seqno is persisted.
    SeqnoPersistence {
        /// The seqno to wait for.
        seqno: u64,
    },
    /// Read any document of a collection.
    GetRandomKey {
        /// The collection.
        collection: u32,
    },
    /// Keys of the vBucket, in order.
    GetKeys {
        /// Largest number.
        count: u32,
        /// The first that is wanted, with its collection prefix where negotiated.
        from: &'a [u8],
    },
    /// Begin a scan of the vBucket.
    RangeScanCreate {
        /// Options of the scan, JSON.
        options: &'a [u8],
    },
    /// Reads on in a scan. A limit of 0 means no limit.
    RangeScanContinue {
        /// The scan.
        uuid: [u8; 16],
        /// Documents at most.
        items: u32,
        /// Milliseconds at most.
        milliseconds: u32,
        /// Bytes at which to stop.
        bytes: u32,
    },
    /// End a scan.
    RangeScanCancel {
        /// The scan.
        uuid: [u8; 16],
    },
    /// High seqnos of the vBuckets in a state.
    GetAllVbSeqnos {
        /// 1 active, 2 replica, 3 pending, 4 dead; none: any state that serves.
        state: Option<u32>,
        /// Limits the request to this collection.
        collection: Option<u32>,
    },
    /// The branches of the vBucket's history.
    GetFailoverLog,
    /// Agree on features: the list of codes.
    Hello {
        /// Feature codes, 16 bits each.
        features: &'a [u8],
    },
    /// List the login mechanisms.
    SaslListMechs,
    /// Begin a login.
    SaslAuth {
        /// Name of the mechanism.
        mechanism: &'a [u8],
        /// The client's first message.
        message: &'a [u8],
    },
    /// Go on with a login.
    SaslStep {
        /// The client's next message.
        message: &'a [u8],
    },
    /// Choose a bucket.
    SelectBucket {
        /// The name.
        name: &'a [u8],
    },
    /// The error map, up to this version.
    GetErrorMap {
        /// The newest version that the client reads.
        version: u16,
    },
    /// The cluster map, if newer than the one named.
    GetClusterConfig {
        /// Epoch and revision that the client has.
        known: Option<(i64, i64)>,
    },
    /// The collections manifest.
    GetCollectionsManifest,
    /// The number of a collection, by `scope.collection`.
    GetCollectionId {
        /// The path.
        path: &'a [u8],
    },
    /// The number of a scope.
    GetScopeId {
        /// The scope, optionally followed by `.collection`.
        path: &'a [u8],
    },
    /// Statistics of a group.
    Stat {
        /// The group; empty for the general one.
        group: &'a [u8],
    },
    /// Make the connection a DCP producer.
    DcpOpen {
        /// The connection's name.
        name: &'a [u8],
        /// A combination of the bits of [`crate::dcp::open_flag`].
        flags: u32,
    },
    /// Have the server ask for a stream.
    DcpAddStream,
    /// End the stream of the vBucket.
    DcpCloseStream,
    /// Begin the stream of the vBucket.
    DcpStreamRequest {
        /// A combination of the bits of [`crate::dcp::stream_flag`].
        flags: u32,
        /// The last seqno that the client has.
        start: u64,
        /// The last seqno that it wants.
        end: u64,
        /// The branch of history that `start` counts in; 0 for a client that has nothing.
        vb_uuid: u64,
        /// First and last seqno of the snapshot that contains `start`.
        snapshot: (u64, u64),
        /// JSON, or empty: the part of the vBucket that the client wants.
        filter: &'a [u8],
    },
    /// The client has taken in so many bytes.
    DcpBufferAck {
        /// Bytes of messages, headers included.
        bytes: u32,
    },
    /// The client's copy of a vBucket has everything up to here.
    DcpSeqnoAcknowledged {
        /// Seqno that fulfils the demands of its prepares.
        seqno: u64,
    },
    /// A setting of a DCP connection.
    DcpControl {
        /// The name of the setting.
        key: &'a [u8],
        /// The value of the setting.
        value: &'a [u8],
    },
    /// Do nothing.
    Noop,
    /// The server's version.
    Version,
    /// Close the connection.
    Quit,
}

/// Options of [`Request::StoreVersion`].
pub mod version_option {
    /// Required by buckets that resolve conflicts by time, so that versions are not sent to them by mistake.
    pub const FORCE_ACCEPT: u32 = 0x02;
    /// Give the version a CAS of this cluster.
    pub const REGENERATE_CAS: u32 = 0x04;
    /// Store the version in any case.
    pub const SKIP_CONFLICT_RESOLUTION: u32 = 0x08;
    /// The deletion is an expiration.
    pub const IS_EXPIRATION: u32 = 0x10;
}

/// Big-endian fields in order; every read says whether the bytes were there.
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

/// Operations that one sub-document request may carry.
const SPECS_MAX: usize = 16;

/// Reads the operations of a multi-path request: opcode, flags, path length, then for writes the value length.
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

/// Reads the optional extras of a sub-document request, which their length identifies: expiry and flags of a write, and
/// the document flags. Gives them in that order.
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

/// A single-path request: its extras are path length, path flags, then optionally expiry and document flags.
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

/// Behind the four fields there may be options, and the length of further metadata at the end of the value, which means
/// nothing here.
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

/// Returns true if `list` is a whole number of entries: vBucket, key length, key.
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

/// Validates the frame of a request; `collections` says whether keys carry a collection id.
///
/// # Errors
/// The status of the answer: [`Status::UnknownCommand`], or the mistake in the request.
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

/// All opcodes but the multi-path ones, as a table with an arm for each; `None` when extras, key or value do not fit the opcode.
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
        // Older clients put the path into the key.
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

/// Requests on documents and streams refuse extras they do not expect, so that no part of a request is silently ignored.
fn extras_consumed(frame: &Frame<'_>, rest: &Fields<'_>, opcode: Opcode) -> bool {
    use Opcode::{DcpBufferAck, DcpControl, DcpOpen, DcpSeqnoAcknowledged, DcpStreamRequest};
    let strict = opcode.addresses_document()
        || matches!(opcode, DcpOpen | DcpStreamRequest | DcpBufferAck | DcpControl)
        || matches!(opcode, DcpSeqnoAcknowledged);
    !strict || rest.0.is_empty() || frame.extras.is_empty()
}
