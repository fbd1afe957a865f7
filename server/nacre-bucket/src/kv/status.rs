//! Wire statuses of refusals: one exhaustive match for each type.

use nacre_protocol::Status;
use nacre_value::Error;
use nacre_vbucket::Refusal;

/// Returns the status of a refused command.
pub(super) fn of_refusal(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::NotFound => Status::KeyNotFound,
        Refusal::Exists => Status::KeyExists,
        Refusal::NotStored => Status::NotStored,
        Refusal::Locked => Status::Locked,
        Refusal::NotLocked => Status::NotLocked,
        Refusal::NotANumber => Status::DeltaBadValue,
        Refusal::TooBig => Status::TooBig,
        Refusal::Invalid => Status::InvalidArguments,
        Refusal::CasInvalid => Status::CasInvalid,
        Refusal::NotDeleted => Status::CanOnlyReviveDeleted,
        Refusal::NotActive => Status::NotMyVbucket,
        Refusal::SyncWriteInProgress => Status::SyncWriteInProgress,
        Refusal::SyncWriteReCommitInProgress => Status::SyncWriteReCommitInProgress,
        Refusal::NotResident | Refusal::NoLease | Refusal::ReadOnly | Refusal::Conflict => {
            Status::TemporaryFailure
        }
        Refusal::Subdoc { .. } => {
            refusal.subdoc_error().map_or(Status::Internal, |(_, error)| of_value_error(error))
        }
        _ => Status::Internal,
    }
}

/// Returns the status of a sub-document error.
pub(super) fn of_value_error(error: Error) -> Status {
    match error {
        Error::PathNotFound => Status::PathNotFound,
        Error::PathMismatch => Status::PathMismatch,
        Error::PathInvalid => Status::PathInvalid,
        Error::PathTooBig => Status::PathTooBig,
        Error::ResultTooBig => Status::TooBig,
        Error::DocumentTooDeep => Status::DocTooDeep,
        Error::ValueCannotInsert => Status::CannotInsert,
        Error::DocumentNotJson => Status::DocNotJson,
        Error::NumberOutOfRange => Status::NumberRange,
        Error::DeltaInvalid => Status::DeltaInvalid,
        Error::PathExists => Status::PathExists,
        Error::ValueTooDeep => Status::ValueTooDeep,
        Error::InvalidCombination => Status::InvalidCombo,
        Error::XattrFlagCombination => Status::XattrFlagCombo,
        Error::XattrInvalid => Status::XattrInvalid,
        Error::XattrUnknownMacro => Status::XattrUnknownMacro,
        Error::XattrUnknownVirtual => Status::XattrUnknownVattr,
        Error::XattrCannotModifyVirtual => Status::XattrReadOnlyVattr,
        Error::XattrOrder => Status::XattrOrder,
        Error::UnknownVirtualMacro => Status::UnknownVattrMacro,
        Error::DocumentDeleted => Status::KeyNotFound,
        Error::DeletedCannotHaveValue => Status::DeletedCannotHaveValue,
        Error::FieldNotBinary => Status::FieldNotBinary,
    }
}
