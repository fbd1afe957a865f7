//! Collections and key scans.

use crate::database::nacre;
use crate::documents::nacre_document;
use crate::outcome::{NACRE_NOTHING, NACRE_OK, borrow, bytes, done, free, give, place, run, text};
use ::nacre::{Collection, Range, Scan};
use parking_lot::Mutex;
use std::ffi::{c_char, c_int};
use std::ops::Bound;

/// A collection of an open database.
#[expect(non_camel_case_types, reason = "the name is C's")]
pub struct nacre_collection {
    pub(crate) collection: Collection,
}

/// The documents of a range of keys.
#[expect(non_camel_case_types, reason = "the name is C's")]
pub struct nacre_scan {
    scan: Mutex<Scan>,
}

/// Opens the collection `path`, "scope.collection" or "collection", and creates it and its scope if they are missing;
/// NULL opens "_default._default".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_collection_open(
    db: *const nacre,
    path: *const c_char,
    collection: *mut *mut nacre_collection,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, place) = unsafe { (borrow(db, "db")?, place(collection, "collection")?) };
        *place = std::ptr::null_mut();
        let collection = match path.is_null() {
            true => db.db.default_collection(),
            // SAFETY: as above.
            false => db.db.collection(unsafe { text(path, "path") }?)?,
        };
        give(place, nacre_collection { collection });
        Ok(())
    })
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_collection_free(collection: *mut nacre_collection) {
    // SAFETY: see the crate's documentation.
    unsafe { free(collection) };
}

/// Opens a scan of the keys from `start`, included, to `end`, excluded; NULL for no bound. Keys are in byte order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_scan_open(
    collection: *const nacre_collection,
    start: *const u8,
    start_size: usize,
    end: *const u8,
    end_size: usize,
    scan: *mut *mut nacre_scan,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, first, behind, place) = unsafe {
            (
                borrow(collection, "collection")?,
                bytes(start, start_size)?,
                bytes(end, end_size)?,
                place(scan, "scan")?,
            )
        };
        *place = std::ptr::null_mut();
        let start = if start.is_null() { Bound::Unbounded } else { Bound::Included(first) };
        let end = if end.is_null() { Bound::Unbounded } else { Bound::Excluded(behind) };
        let scan = collection.collection.scan(Range::between(start, end))?;
        give(place, nacre_scan { scan: Mutex::new(scan) });
        Ok(())
    })
}

/// Reads the next document; NACRE_NOTHING at the end. Release the document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_scan_next(
    scan: *const nacre_scan,
    document: *mut nacre_document,
) -> c_int {
    run(|| {
        // SAFETY: see the crate's documentation.
        let (scan, document) = unsafe { (borrow(scan, "scan")?, place(document, "document")?) };
        document.check()?;
        match scan.scan.lock().next() {
            None => Ok(NACRE_NOTHING),
            Some(found) => {
                document.fill(found?);
                Ok(NACRE_OK)
            }
        }
    })
}

/// Ends a scan and frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_scan_free(scan: *mut nacre_scan) {
    // SAFETY: see the crate's documentation.
    unsafe { free(scan) };
}
