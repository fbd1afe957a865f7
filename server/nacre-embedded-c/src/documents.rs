//! Whole documents.

use crate::collection::nacre_collection;
use crate::outcome::{borrow, bytes, done, invalid, place};
use ::nacre::{Cas, Collection, Error, Found, Stored, Sync, Write};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Writes a document, whether it exists or not.
pub const NACRE_UPSERT: c_int = 0;
/// Writes a document that must not exist.
pub const NACRE_INSERT: c_int = 1;
/// Writes a document that must exist.
pub const NACRE_REPLACE: c_int = 2;

/// A document as read. It does not change; the database owns its memory until it is released.
#[repr(C)]
pub struct nacre_document {
    /// sizeof(nacre_document).
    pub size: usize,
    /// The key.
    pub key: *const u8,
    /// Bytes of the key.
    pub key_size: usize,
    /// The body.
    pub body: *const u8,
    /// Bytes of the body.
    pub body_size: usize,
    /// The version; UINT64_MAX for a document that is locked.
    pub cas: u64,
    /// The flags, a number that the writer stored with the document.
    pub flags: u32,
    /// The Unix second at which the document expires; 0 for never.
    pub expiry: u32,
    /// Not 0 if the body is JSON.
    pub is_json: c_int,
    /// The owner of the memory, for nacre_document_release().
    pub owner: *mut c_void,
}

impl nacre_document {
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.size == size_of::<nacre_document>() {
            true => Ok(()),
            false => Err(invalid("document.size is not sizeof(nacre_document)")),
        }
    }

    /// Sets the members. Key and body keep their addresses when the box moves, because it shares them by reference.
    pub(crate) fn fill(&mut self, found: Found) {
        let found = Box::new(found);
        (self.key, self.key_size) = (found.key().as_ptr(), found.key().len());
        (self.body, self.body_size) = (found.body().as_ptr(), found.body().len());
        (self.cas, self.flags) = (found.cas().0, found.flags());
        (self.expiry, self.is_json) = (found.expiry(), found.is_json().into());
        self.owner = Box::into_raw(found).cast();
    }
}

/// Options of a write. 0 selects the default of a member.
#[repr(C)]
pub struct nacre_write {
    /// sizeof(nacre_write).
    pub size: usize,
    /// The version that the document must have; 0 for any.
    pub cas: u64,
    /// A number to store with the document.
    pub flags: u32,
    /// Seconds until the document expires, up to 30 days; a larger number is a Unix second.
    pub expiry: u32,
    /// Not 0: an existing document keeps its expiry.
    pub keep_expiry: c_int,
    /// Not 0: the write is on disk before the call returns.
    pub durable: c_int,
}

/// The version that a write created.
#[repr(C)]
pub struct nacre_stored {
    /// sizeof(nacre_stored).
    pub size: usize,
    /// The version.
    pub cas: u64,
    /// The branch of the vBucket's history.
    pub vb_uuid: u64,
    /// The position in that history.
    pub seqno: u64,
    /// The vBucket.
    pub vbucket: u32,
}

/// Reads the options of a write; NULL selects the defaults.
pub(crate) unsafe fn write_of(write: *const nacre_write) -> Result<Write, Error> {
    // SAFETY: see the crate's documentation.
    let Some(given) = (unsafe { write.as_ref() }) else { return Ok(Write::new()) };
    if given.size != size_of::<nacre_write>() {
        return Err(invalid("write.size is not sizeof(nacre_write)"));
    }
    let mut write = Write::new().flags(given.flags).expiry(given.expiry);
    if given.cas != 0 {
        write = write.cas(Cas(given.cas));
    }
    if given.keep_expiry != 0 {
        write = write.keep_expiry();
    }
    if given.durable != 0 {
        write = write.sync(Sync::Always);
    }
    Ok(write)
}

/// Sets the version that a write created, if the caller wants it.
pub(crate) unsafe fn fill_stored(
    place: *mut nacre_stored,
    stored: impl FnOnce() -> Result<Stored, Error>,
) -> Result<(), Error> {
    let size = size_of::<nacre_stored>();
    // SAFETY: see the crate's documentation.
    let place = unsafe { place.as_mut() };
    // Checked before the write, so that a refused call has written nothing.
    if place.as_ref().is_some_and(|place| place.size != size) {
        return Err(invalid("stored.size is not sizeof(nacre_stored)"));
    }
    let Stored { cas, vbid, vb_uuid, seqno } = stored()?;
    if let Some(place) = place {
        let (cas, vb_uuid, seqno, vbucket) = (cas.0, vb_uuid.0, seqno.0, vbid.0.into());
        *place = nacre_stored { size, cas, vb_uuid, seqno, vbucket };
    }
    Ok(())
}

unsafe fn collection_and_key<'a>(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
) -> Result<(&'a Collection, &'a [u8]), Error> {
    // SAFETY: see the crate's documentation.
    let (collection, key) = unsafe { (borrow(collection, "collection")?, bytes(key, key_size)?) };
    Ok((&collection.collection, key))
}

/// Reads a document. Release the document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_get(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    document: *mut nacre_document,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        let document = unsafe { place(document, "document") }?;
        document.check()?;
        document.fill(collection.get(key)?.ok_or(Error::DocumentNotFound)?);
        Ok(())
    })
}

/// Returns the memory of a document to the database. The document is empty afterwards; releasing it again does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_document_release(document: *mut nacre_document) {
    // SAFETY: see the crate's documentation.
    let Some(document) = (unsafe { document.as_mut() }) else { return };
    let owner = std::mem::replace(&mut document.owner, std::ptr::null_mut());
    (document.key, document.key_size) = (std::ptr::null(), 0);
    (document.body, document.body_size) = (std::ptr::null(), 0);
    // SAFETY: `fill` created the owner from a box, and it was removed from the document.
    unsafe { crate::outcome::free(owner.cast::<Found>()) };
}

/// Sets `exists` to 1 if the document exists, else to 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_exists(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    exists: *mut c_int,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        *unsafe { place(exists, "exists") }? = collection.exists(key)?.into();
        Ok(())
    })
}

/// Writes a document: `mode` is NACRE_UPSERT, NACRE_INSERT or NACRE_REPLACE. `write` and `stored` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_put(
    collection: *const nacre_collection,
    mode: c_int,
    key: *const u8,
    key_size: usize,
    body: *const u8,
    body_size: usize,
    write: *const nacre_write,
    stored: *mut nacre_stored,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        let (body, write) = unsafe { (bytes(body, body_size)?, write_of(write)?) };
        let put = || match mode {
            NACRE_UPSERT => collection.upsert(key, body, write),
            NACRE_INSERT => collection.insert(key, body, write),
            NACRE_REPLACE => collection.replace(key, body, write),
            _ => Err(invalid("mode must be NACRE_UPSERT, NACRE_INSERT or NACRE_REPLACE")),
        };
        // SAFETY: as above.
        unsafe { fill_stored(stored, put) }
    })
}

/// Deletes a document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_remove(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    write: *const nacre_write,
    stored: *mut nacre_stored,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        unsafe {
            let write = write_of(write)?;
            fill_stored(stored, || collection.remove(key, write))
        }
    })
}

/// Sets the expiry of a document, as in nacre_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_touch(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    expiry: u32,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        collection.touch(key, expiry).map(drop)
    })
}

/// Reads and locks a document for 1 to 30 seconds. Release the document; nacre_unlock() or a write with its CAS ends the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_lock(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    seconds: u32,
    document: *mut nacre_document,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        let document = unsafe { place(document, "document") }?;
        document.check()?;
        document.fill(collection.get_and_lock(key, Duration::from_secs(seconds.into()))?);
        Ok(())
    })
}

/// Unlocks a document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_unlock(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    cas: u64,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        collection.unlock(key, Cas(cas))
    })
}

/// Adds to a number. A missing document becomes `*initial`; with NULL it must exist. Writes the sum to `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_add(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    delta: i64,
    initial: *const u64,
    write: *const nacre_write,
    value: *mut u64,
    stored: *mut nacre_stored,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        let (initial, write, value) =
            unsafe { (initial.as_ref().copied(), write_of(write)?, value.as_mut()) };
        let add = || {
            let (sum, stored) = collection.add(key, delta, initial, write)?;
            value.into_iter().for_each(|place| *place = sum);
            Ok(stored)
        };
        // SAFETY: as above.
        unsafe { fill_stored(stored, add) }
    })
}

/// Appends bytes to the body of a document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_append(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    data: *const u8,
    data_size: usize,
    write: *const nacre_write,
    stored: *mut nacre_stored,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        unsafe {
            let (data, write) = (bytes(data, data_size)?, write_of(write)?);
            fill_stored(stored, || collection.append(key, data, write))
        }
    })
}

/// Prepends bytes to the body of a document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_prepend(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    data: *const u8,
    data_size: usize,
    write: *const nacre_write,
    stored: *mut nacre_stored,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key) = unsafe { collection_and_key(collection, key, key_size) }?;
        // SAFETY: as above.
        unsafe {
            let (data, write) = (bytes(data, data_size)?, write_of(write)?);
            fill_stored(stored, || collection.prepend(key, data, write))
        }
    })
}
