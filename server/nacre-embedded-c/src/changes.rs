//! Listeners.

use crate::collection::nacre_collection;
use crate::database::nacre;
use crate::outcome::{
    NACRE_NOTHING, NACRE_OK, borrow, done, free, give, invalid, nacre_buffer, place, run, text,
};
use crate::wake::Wake;
use ::nacre::{Change, ChangeKind, Changes, Since};
use parking_lot::Mutex;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// The document was created or changed.
pub const NACRE_WRITTEN: c_int = 0;
/// The document was deleted.
pub const NACRE_REMOVED: c_int = 1;
/// The document expired.
pub const NACRE_EXPIRED: c_int = 2;

/// A listener.
#[expect(non_camel_case_types, reason = "the name is C's")]
pub struct nacre_changes {
    changes: Mutex<Changes>,
    /// Keeps the descriptor open.
    _wake: Arc<Wake>,
}

/// A change of a document.
#[repr(C)]
pub struct nacre_change {
    /// sizeof(nacre_change).
    pub size: usize,
    /// NACRE_WRITTEN, NACRE_REMOVED or NACRE_EXPIRED.
    pub kind: c_int,
    /// The collection, "scope.collection".
    pub collection: *const c_char,
    /// The key.
    pub key: *const u8,
    /// Bytes of the key.
    pub key_size: usize,
    /// The new body.
    pub body: *const u8,
    /// Bytes of the body.
    pub body_size: usize,
    /// The new version.
    pub cas: u64,
    /// The position in the history of its vBucket.
    pub seqno: u64,
    /// The owner of the memory, for nacre_change_release().
    pub owner: *mut c_void,
}

struct Owner {
    change: Change,
    collection: CString,
}

/// Listens to the changes of `collection`, or of all collections with NULL. `since` is NULL for the whole history, "now" for
/// future writes only, or a text from nacre_changes_token().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_changes_open(
    db: *const nacre,
    collection: *const nacre_collection,
    since: *const c_char,
    changes: *mut *mut nacre_changes,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, collection, place) =
            unsafe { (borrow(db, "db")?, collection.as_ref(), place(changes, "changes")?) };
        *place = std::ptr::null_mut();
        let since = match since.is_null() {
            true => Since::Start,
            // SAFETY: as above.
            false => match unsafe { text(since, "since") }? {
                "now" => Since::Now,
                token => Since::Token(token),
            },
        };
        let opened = match collection {
            None => db.db.changes(since)?,
            Some(collection) => collection.collection.changes(since)?,
        };
        let wake = Arc::clone(&db.wake);
        opened.on_ready(move || wake.ring());
        let changes = Mutex::new(opened);
        give(place, nacre_changes { changes, _wake: Arc::clone(&db.wake) });
        Ok(())
    })
}

/// Returns the next change and waits for it up to `timeout_ms`; NACRE_NOTHING when none came. Release the change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_changes_next(
    changes: *const nacre_changes,
    timeout_ms: u64,
    change: *mut nacre_change,
) -> c_int {
    run(|| {
        // SAFETY: see the crate's documentation.
        let (changes, place) = unsafe { (borrow(changes, "changes")?, place(change, "change")?) };
        let size = size_of::<nacre_change>();
        if place.size != size {
            return Err(invalid("change.size is not sizeof(nacre_change)"));
        }
        let mut changes = changes.changes.lock();
        let next = match timeout_ms {
            0 => changes.try_next()?,
            timeout => changes.next_within(Duration::from_millis(timeout))?,
        };
        let Some(change) = next else { return Ok(NACRE_NOTHING) };
        let collection = CString::new(change.collection()).unwrap_or_default();
        let owner = Box::new(Owner { change, collection });
        let change = &owner.change;
        *place = nacre_change {
            size,
            kind: match change.kind() {
                ChangeKind::Written => NACRE_WRITTEN,
                ChangeKind::Removed => NACRE_REMOVED,
                ChangeKind::Expired => NACRE_EXPIRED,
            },
            collection: owner.collection.as_ptr(),
            key: change.key().as_ptr(),
            key_size: change.key().len(),
            body: change.body().as_ptr(),
            body_size: change.body().len(),
            cas: change.cas().0,
            seqno: change.place().1.0,
            owner: std::ptr::null_mut(),
        };
        place.owner = Box::into_raw(owner).cast();
        Ok(NACRE_OK)
    })
}

/// Returns the memory of a change. Releasing it again does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_change_release(change: *mut nacre_change) {
    // SAFETY: see the crate's documentation.
    let Some(change) = (unsafe { change.as_mut() }) else { return };
    let owner = std::mem::replace(&mut change.owner, std::ptr::null_mut());
    change.collection = std::ptr::null();
    (change.key, change.key_size) = (std::ptr::null(), 0);
    (change.body, change.body_size) = (std::ptr::null(), 0);
    // SAFETY: the owner was created from a box, and was removed from the change.
    unsafe { free(owner.cast::<Owner>()) };
}

/// Returns the position of the listener as a text, to be stored and passed to nacre_changes_open(). Free the buffer; its text is
/// not zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_changes_token(
    changes: *const nacre_changes,
    token: *mut nacre_buffer,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (changes, token) = unsafe { (borrow(changes, "changes")?, place(token, "token")?) };
        *token = nacre_buffer::of(changes.changes.lock().token().into_bytes());
        Ok(())
    })
}

/// Ends a listener and frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_changes_free(changes: *mut nacre_changes) {
    // SAFETY: see the crate's documentation.
    unsafe { free(changes) };
}
