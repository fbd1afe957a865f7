//! Statuses, messages, and the conversion of C pointers to Rust references.

use ::nacre::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The call succeeded.
pub const NACRE_OK: c_int = 0;
/// The document does not exist.
pub const NACRE_NOT_FOUND: c_int = 1;
/// The document already exists.
pub const NACRE_EXISTS: c_int = 2;
/// The document has another version than the one given.
pub const NACRE_CAS_MISMATCH: c_int = 3;
/// The document is locked.
pub const NACRE_LOCKED: c_int = 4;
/// The document is not locked.
pub const NACRE_NOT_LOCKED: c_int = 5;
/// The document of a counter is not a number.
pub const NACRE_NOT_A_NUMBER: c_int = 6;
/// The document would be too large.
pub const NACRE_TOO_LARGE: c_int = 7;
/// A part of a document cannot be read or changed.
pub const NACRE_PATH: c_int = 8;
/// An argument is NULL, out of range, or contradicts another.
pub const NACRE_INVALID_ARGUMENT: c_int = 9;
/// The scope does not exist or was dropped.
pub const NACRE_SCOPE_NOT_FOUND: c_int = 10;
/// The collection does not exist or was dropped.
pub const NACRE_COLLECTION_NOT_FOUND: c_int = 11;
/// The scope or collection already exists.
pub const NACRE_KEYSPACE_EXISTS: c_int = 12;
/// The folder is already open; the message contains the process ID.
pub const NACRE_IN_USE: c_int = 13;
/// The folder was written by a newer version.
pub const NACRE_NEWER: c_int = 14;
/// Files are damaged or missing.
pub const NACRE_DAMAGED: c_int = 15;
/// The disk is full.
pub const NACRE_FULL: c_int = 16;
/// The memory quota is used up.
pub const NACRE_QUOTA_EXCEEDED: c_int = 17;
/// The disk failed, and no more writes are stored.
pub const NACRE_BROKEN: c_int = 18;
/// The operating system refused an operation on the folder.
pub const NACRE_IO: c_int = 19;
/// The database was closed.
pub const NACRE_CLOSED: c_int = 20;
/// The database was opened before fork().
pub const NACRE_FORKED: c_int = 21;
/// The changes after a token were lost.
pub const NACRE_GONE: c_int = 22;
/// The session has ended.
pub const NACRE_SESSION_ENDED: c_int = 23;
/// Nothing is available now, or there are no more results.
pub const NACRE_NOTHING: c_int = 24;
/// The folder is encrypted with another key.
pub const NACRE_WRONG_KEY: c_int = 25;
/// The folder is encrypted, and no key was given: use nacre_open_with_key().
pub const NACRE_ENCRYPTED: c_int = 26;
/// A key was given for a database that is not encrypted.
pub const NACRE_NOT_ENCRYPTED: c_int = 27;
/// The design document or the view does not exist.
pub const NACRE_VIEW_NOT_FOUND: c_int = 30;
/// The rows of a view were not ready in time: try again.
pub const NACRE_VIEWS_NOT_READY: c_int = 31;
/// The rows of a design document, or the answer to a query, are too large.
pub const NACRE_VIEWS_TOO_LARGE: c_int = 32;
/// The engine of views failed.
pub const NACRE_VIEWS_FAILED: c_int = 33;
/// A query was refused or has failed; the message ends with the code of the query service.
pub const NACRE_QUERY_FAILED: c_int = 34;
/// A bug in this library.
pub const NACRE_INTERNAL: c_int = 99;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn status_of(error: &Error) -> c_int {
    match error {
        Error::DocumentNotFound => NACRE_NOT_FOUND,
        Error::DocumentExists => NACRE_EXISTS,
        Error::CasMismatch => NACRE_CAS_MISMATCH,
        Error::DocumentLocked => NACRE_LOCKED,
        Error::DocumentNotLocked => NACRE_NOT_LOCKED,
        Error::NotANumber => NACRE_NOT_A_NUMBER,
        Error::TooLarge => NACRE_TOO_LARGE,
        Error::Path { .. } => NACRE_PATH,
        Error::InvalidArgument(_) => NACRE_INVALID_ARGUMENT,
        Error::ScopeNotFound(_) => NACRE_SCOPE_NOT_FOUND,
        Error::CollectionNotFound(_) => NACRE_COLLECTION_NOT_FOUND,
        Error::KeyspaceExists(_) => NACRE_KEYSPACE_EXISTS,
        Error::InUse { .. } => NACRE_IN_USE,
        Error::Newer { .. } => NACRE_NEWER,
        Error::Damaged { .. } => NACRE_DAMAGED,
        Error::WrongKey => NACRE_WRONG_KEY,
        Error::Encrypted => NACRE_ENCRYPTED,
        Error::NotEncrypted => NACRE_NOT_ENCRYPTED,
        Error::Full => NACRE_FULL,
        Error::QuotaExceeded => NACRE_QUOTA_EXCEEDED,
        Error::Broken { .. } => NACRE_BROKEN,
        Error::Io { .. } => NACRE_IO,
        Error::Closed => NACRE_CLOSED,
        Error::Forked => NACRE_FORKED,
        Error::Gone(_) => NACRE_GONE,
        Error::SessionEnded(_) => NACRE_SESSION_ENDED,
        Error::ViewNotFound(_) => NACRE_VIEW_NOT_FOUND,
        Error::ViewsNotReady => NACRE_VIEWS_NOT_READY,
        Error::ViewsTooLarge(_) => NACRE_VIEWS_TOO_LARGE,
        Error::ViewsFailed(_) => NACRE_VIEWS_FAILED,
        Error::Query { .. } => NACRE_QUERY_FAILED,
        _ => NACRE_INTERNAL,
    }
}

fn fail(status: c_int, message: &str) -> c_int {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    MESSAGE.set(message);
    status
}

/// Records the message of a refused part and returns its status.
pub(crate) fn refuse_part(error: ::nacre::PathError) -> c_int {
    fail(NACRE_PATH, &error.to_string())
}

/// Runs a call: converts its error or panic to a status and a message.
pub(crate) fn run(call: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => fail(status_of(&error), &error.to_string()),
        Err(_) => fail(NACRE_INTERNAL, "a defect of this library: see what it wrote to stderr"),
    }
}

/// Runs a call without a result.
pub(crate) fn done(call: impl FnOnce() -> Result<(), Error>) -> c_int {
    run(|| call().map(|()| NACRE_OK))
}

pub(crate) fn invalid(what: &str) -> Error {
    Error::InvalidArgument(what.to_owned())
}

/// Borrows a handle or struct.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Error> {
    // SAFETY: the caller's pointers are NULL or valid, as the crate's documentation requires.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(&format!("{what} is NULL")))
}

/// Borrows the memory for a result.
pub(crate) unsafe fn place<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Error> {
    // SAFETY: as above, and the caller does not access the memory meanwhile.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid(&format!("{what} is NULL")))
}

/// Borrows bytes.
pub(crate) unsafe fn bytes<'a>(data: *const u8, size: usize) -> Result<&'a [u8], Error> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid("bytes are NULL and have a size")),
        (false, size) if size > isize::MAX as usize => Err(invalid("a size is out of range")),
        // SAFETY: the caller's pointer has that many bytes.
        (false, size) => Ok(unsafe { std::slice::from_raw_parts(data, size) }),
    }
}

/// Borrows a zero-terminated text.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    if text.is_null() {
        return Err(invalid(&format!("{what} is NULL")));
    }
    // SAFETY: the caller's text is zero-terminated.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid(&format!("{what} is not UTF-8")))
}

/// Passes a value to the caller, who frees it with [`free`].
pub(crate) fn give<T>(place: &mut *mut T, value: T) {
    *place = Box::into_raw(Box::new(value));
}

/// Frees a value that `give` has passed to the caller.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the value was passed by `give` and is freed once.
        let value = unsafe { Box::from_raw(pointer) };
        // A destructor must not unwind into C.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
    }
}

/// Bytes that the caller must free with nacre_buffer_free().
#[repr(C)]
pub struct nacre_buffer {
    /// The bytes; NULL for no bytes.
    pub data: *mut u8,
    /// The number of bytes.
    pub size: usize,
}

impl nacre_buffer {
    pub(crate) fn of(bytes: Vec<u8>) -> nacre_buffer {
        if bytes.is_empty() {
            return nacre_buffer { data: std::ptr::null_mut(), size: 0 };
        }
        let bytes = Box::leak(bytes.into_boxed_slice());
        nacre_buffer { data: bytes.as_mut_ptr(), size: bytes.len() }
    }
}

/// Frees the bytes of a buffer. The buffer is empty afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_buffer_free(buffer: *mut nacre_buffer) {
    // SAFETY: see the crate's documentation.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else { return };
    if !buffer.data.is_null() {
        let bytes = std::ptr::slice_from_raw_parts_mut(buffer.data, buffer.size);
        // SAFETY: data and size are those of the box that `of` leaked, and the buffer is emptied below.
        drop(unsafe { Box::from_raw(bytes) });
    }
    (buffer.data, buffer.size) = (std::ptr::null_mut(), 0);
}

/// Returns the message of the last failure in this thread. It is valid until the thread's next call that
/// fails.
#[unsafe(no_mangle)]
pub extern "C" fn nacre_error_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn nacre_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
