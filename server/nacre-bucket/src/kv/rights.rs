//! The right that each opcode requires. Opcodes that the table does not list are refused.

use nacre_auth::Privilege;
use nacre_protocol::{Opcode, SubdocSpec};

/// The requirement of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// None: the request is part of a login, or reveals nothing about the node.
    Nothing,
    /// A logged-in user.
    Login,
    /// A selected bucket that the user may open.
    Bucket,
    /// A privilege on the bucket, or on the part of it that the request names.
    WithinBucket(Privilege),
    /// A privilege on the whole bucket.
    OnBucket(Privilege),
    /// Privileges on the collection that the request names.
    OnCollection(&'static [Privilege]),
}

const READ: Need = Need::OnCollection(&[Privilege::ReadData]);
const INSERT: Need = Need::OnCollection(&[Privilege::InsertData]);
const UPSERT: Need = Need::OnCollection(&[Privilege::UpsertData]);
const DELETE: Need = Need::OnCollection(&[Privilege::DeleteData]);
/// Writes that return the previous contents.
const READ_AND_UPSERT: Need = Need::OnCollection(&[Privilege::ReadData, Privilege::UpsertData]);

/// Returns the requirement of an opcode.
pub(super) fn need(opcode: Opcode) -> Need {
    use Opcode::*;
    match opcode {
        Hello | SaslListMechs | SaslAuth | SaslStep | GetErrorMap | Version | Noop | Quit
        | QuitQ => Need::Nothing,
        SelectBucket | GetClusterConfig => Need::Login,
        GetCollectionsManifest
        | GetCollectionId
        | GetScopeId
        | ObserveSeqno
        | SeqnoPersistence
        | GetAllVbSeqnos
        | GetFailoverLog
        // A scan was authorised when it began, and its ID is unguessable.
        | RangeScanContinue
        | RangeScanCancel => Need::Bucket,
        DcpOpen | DcpAddStream | DcpCloseStream | DcpStreamRequest | DcpGetFailoverLog
        | DcpNoop | DcpBufferAck | DcpSeqnoAcknowledged | DcpControl => Need::WithinBucket(Privilege::StreamData),
        Stat => Need::OnBucket(Privilege::ReadStats),
        Get | GetQ | GetK | GetKQ | GetReplica | GetMeta | GetMetaQ | GetRandomKey | GetKeys
        | RangeScanCreate | Observe | SubdocGet | SubdocExists | SubdocGetCount
        | SubdocMultiLookup => READ,
        SetWithMeta | SetWithMetaQ | AddWithMeta | AddWithMetaQ | DeleteWithMeta
        | DeleteWithMetaQ => Need::OnCollection(&[Privilege::WriteWithMeta]),
        Add | AddQ => INSERT,
        Delete | DeleteQ => DELETE,
        Set
        | SetQ
        | Replace
        | ReplaceQ
        | Append
        | AppendQ
        | Prepend
        | PrependQ
        | Touch
        | UnlockKey
        | SubdocDictAdd
        | SubdocDictUpsert
        | SubdocDelete
        | SubdocReplace
        | SubdocArrayPushLast
        | SubdocArrayPushFirst
        | SubdocArrayInsert
        | SubdocArrayAddUnique
        | SubdocMultiMutation
        | SubdocReplaceBodyWithXattr => UPSERT,
        Increment | IncrementQ | Decrement | DecrementQ | GetAndTouch | GetAndTouchQ
        | GetLocked | SubdocCounter => READ_AND_UPSERT,
    }
}

/// Returns true if an operation requests the names of extended attributes.
pub(super) fn asks_for_names(specs: &[SubdocSpec<'_>], xattr_flag: u8) -> bool {
    specs.iter().any(|spec| spec.flags & xattr_flag != 0 && spec.path.starts_with(b"$XTOC"))
}

/// Returns true if an operation removes the whole document.
pub(super) fn removes_document(specs: &[SubdocSpec<'_>]) -> bool {
    specs.iter().any(|spec| spec.opcode == Opcode::Delete as u8)
}

/// Returns true if an operation touches a system attribute: one whose name begins with an underscore.
pub(super) fn touches_system_attribute(specs: &[SubdocSpec<'_>], xattr_flag: u8) -> bool {
    specs.iter().any(|spec| spec.flags & xattr_flag != 0 && spec.path.first() == Some(&b'_'))
}
