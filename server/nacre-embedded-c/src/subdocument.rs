//! Parts of documents.

use crate::collection::nacre_collection;
use crate::documents::{
    NACRE_INSERT, NACRE_REPLACE, NACRE_UPSERT, fill_stored, nacre_stored, nacre_write,
};
use crate::outcome::{
    NACRE_NOTHING, NACRE_OK, borrow, bytes, done, free, give, invalid, place, refuse_part, run,
};
use ::nacre::{Cas, Error, Lookup, MutateIn, Mutation, PathError, Sync};
use std::ffi::c_int;

/// Reads the value at a path.
pub const NACRE_PART_GET: c_int = 0;
/// Fails when the path does not exist.
pub const NACRE_PART_EXISTS: c_int = 1;
/// Reads the number of elements or members.
pub const NACRE_PART_COUNT: c_int = 2;
/// Reads or replaces the whole body.
pub const NACRE_PART_DOCUMENT: c_int = 3;
/// Adds or replaces a member.
pub const NACRE_PART_UPSERT: c_int = 4;
/// Adds a member that must not exist.
pub const NACRE_PART_INSERT: c_int = 5;
/// Replaces a member or an element that must exist.
pub const NACRE_PART_REPLACE: c_int = 6;
/// Removes a member or an element.
pub const NACRE_PART_REMOVE: c_int = 7;
/// Adds elements at the end of an array.
pub const NACRE_PART_ARRAY_APPEND: c_int = 8;
/// Adds elements at the start of an array.
pub const NACRE_PART_ARRAY_PREPEND: c_int = 9;
/// Inserts elements before the element at the path.
pub const NACRE_PART_ARRAY_INSERT: c_int = 10;
/// Adds a value to an array that does not contain it.
pub const NACRE_PART_ARRAY_ADD_UNIQUE: c_int = 11;
/// Adds a decimal number to the number at the path.
pub const NACRE_PART_COUNTER: c_int = 12;

/// The path is that of an extended attribute.
pub const NACRE_PART_XATTR: u32 = 1;
/// Missing parents are created.
pub const NACRE_PART_CREATE_PATH: u32 = 2;
/// Macros in the value are expanded.
pub const NACRE_PART_EXPAND_MACROS: u32 = 4;

/// An operation on a part of a document.
#[repr(C)]
pub struct nacre_part {
    /// sizeof(nacre_part).
    pub size: usize,
    /// One of NACRE_PART_GET to NACRE_PART_COUNTER.
    pub operation: c_int,
    /// A sum of NACRE_PART_XATTR, NACRE_PART_CREATE_PATH and NACRE_PART_EXPAND_MACROS.
    pub flags: u32,
    /// The path, in UTF-8.
    pub path: *const u8,
    /// Bytes of the path.
    pub path_size: usize,
    /// JSON to write.
    pub value: *const u8,
    /// Bytes of the value.
    pub value_size: usize,
}

/// The result of a lookup or of a change of parts.
#[expect(non_camel_case_types, reason = "the name is C's")]
pub struct nacre_parts {
    cas: Cas,
    parts: Vec<Option<Result<Vec<u8>, PathError>>>,
}

/// A part with Rust references in place of pointers.
struct Given<'a> {
    operation: c_int,
    flags: u32,
    path: &'a str,
    value: &'a [u8],
}

unsafe fn given<'a>(parts: *const nacre_part, count: usize) -> Result<Vec<Given<'a>>, Error> {
    if count > 16 || (parts.is_null() && count > 0) {
        return Err(invalid("there are up to 16 parts, and they are not NULL"));
    }
    (0..count)
        .map(|index| {
            // SAFETY: the caller's pointer has `count` parts.
            let part = unsafe { &*parts.add(index) };
            if part.size != size_of::<nacre_part>() {
                return Err(invalid("part.size is not sizeof(nacre_part)"));
            }
            // SAFETY: see the crate's documentation.
            let (path, value) =
                unsafe { (bytes(part.path, part.path_size)?, bytes(part.value, part.value_size)?) };
            let path = std::str::from_utf8(path).map_err(|_| invalid("a path is not UTF-8"))?;
            Ok(Given { operation: part.operation, flags: part.flags, path, value })
        })
        .collect()
}

fn lookup<'a>(part: &Given<'a>) -> Result<Lookup<'a>, Error> {
    let lookup = match part.operation {
        NACRE_PART_GET => Lookup::get(part.path),
        NACRE_PART_EXISTS => Lookup::exists(part.path),
        NACRE_PART_COUNT => Lookup::count(part.path),
        NACRE_PART_DOCUMENT => Lookup::document(),
        _ => return Err(invalid("a part that is read is NACRE_PART_GET to NACRE_PART_DOCUMENT")),
    };
    match part.flags {
        0 => Ok(lookup),
        NACRE_PART_XATTR => Ok(lookup.xattr()),
        _ => Err(invalid("a part that is read has no flags but NACRE_PART_XATTR")),
    }
}

fn mutation<'a>(part: &Given<'a>) -> Result<Mutation<'a>, Error> {
    let Given { path, value, .. } = *part;
    let mut mutation = match part.operation {
        NACRE_PART_DOCUMENT => Mutation::document(value),
        NACRE_PART_UPSERT => Mutation::upsert(path, value),
        NACRE_PART_INSERT => Mutation::insert(path, value),
        NACRE_PART_REPLACE => Mutation::replace(path, value),
        NACRE_PART_REMOVE => Mutation::remove(path),
        NACRE_PART_ARRAY_APPEND => Mutation::array_append(path, value),
        NACRE_PART_ARRAY_PREPEND => Mutation::array_prepend(path, value),
        NACRE_PART_ARRAY_INSERT => Mutation::array_insert(path, value),
        NACRE_PART_ARRAY_ADD_UNIQUE => Mutation::array_add_unique(path, value),
        NACRE_PART_COUNTER => Mutation::counter(path, value),
        _ => {
            return Err(invalid(
                "a part that is changed is NACRE_PART_DOCUMENT to NACRE_PART_COUNTER",
            ));
        }
    };
    if part.flags & NACRE_PART_XATTR != 0 {
        mutation = mutation.xattr();
    }
    if part.flags & NACRE_PART_CREATE_PATH != 0 {
        mutation = mutation.create_path();
    }
    if part.flags & NACRE_PART_EXPAND_MACROS != 0 {
        mutation = mutation.expand_macros();
    }
    Ok(mutation)
}

/// Reads up to 16 parts of a document. Free `found`; its parts have the indexes of the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_lookup_in(
    collection: *const nacre_collection,
    key: *const u8,
    key_size: usize,
    parts: *const nacre_part,
    count: usize,
    found: *mut *mut nacre_parts,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let place = unsafe { place(found, "found") }?;
        *place = std::ptr::null_mut();
        // SAFETY: as above.
        let (collection, key, parts) = unsafe {
            (borrow(collection, "collection")?, bytes(key, key_size)?, given(parts, count)?)
        };
        let lookups: Vec<_> = parts.iter().map(lookup).collect::<Result<_, _>>()?;
        let looked = collection.collection.lookup_in(key, &lookups)?;
        let parts = looked.parts.into_iter().map(Some).collect();
        give(place, nacre_parts { cas: looked.cas, parts });
        Ok(())
    })
}

/// Changes up to 16 parts of a document: all or none. `mode` is as for nacre_put(). `results` may be NULL; otherwise free it: the
/// indexes of counters have the new values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_mutate_in(
    collection: *const nacre_collection,
    mode: c_int,
    key: *const u8,
    key_size: usize,
    parts: *const nacre_part,
    count: usize,
    write: *const nacre_write,
    stored: *mut nacre_stored,
    results: *mut *mut nacre_parts,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (collection, key, parts, given, results) = unsafe {
            (
                borrow(collection, "collection")?,
                bytes(key, key_size)?,
                given(parts, count)?,
                write.as_ref(),
                results.as_mut(),
            )
        };
        let mut how = match mode {
            NACRE_UPSERT => MutateIn::upsert(),
            NACRE_INSERT => MutateIn::insert(),
            NACRE_REPLACE => MutateIn::replace(),
            _ => {
                return Err(invalid("mode must be NACRE_UPSERT, NACRE_INSERT or NACRE_REPLACE"));
            }
        };
        if let Some(given) = given {
            if given.size != size_of::<nacre_write>() {
                return Err(invalid("write.size is not sizeof(nacre_write)"));
            }
            how = how.expiry(given.expiry);
            how = if given.cas == 0 { how } else { how.cas(Cas(given.cas)) };
            how = if given.keep_expiry == 0 { how } else { how.keep_expiry() };
            how = if given.durable == 0 { how } else { how.sync(Sync::Always) };
        }
        let mutations: Vec<_> = parts.iter().map(mutation).collect::<Result<_, _>>()?;
        let mutate = || {
            let mutated = collection.collection.mutate_in(key, &mutations, how)?;
            if let Some(place) = results {
                let mut parts = vec![None; count];
                for (index, value) in mutated.results {
                    parts[usize::from(index)] = Some(Ok(value));
                }
                give(place, nacre_parts { cas: mutated.stored.cas, parts });
            }
            Ok(mutated.stored)
        };
        // SAFETY: as above.
        unsafe { fill_stored(stored, mutate) }
    })
}

/// Returns the version of the document.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_parts_cas(parts: *const nacre_parts) -> u64 {
    // SAFETY: see the crate's documentation.
    unsafe { parts.as_ref() }.map_or(0, |parts| parts.cas.0)
}

/// Returns the value of one part, which is valid until the parts are freed. NACRE_PATH when it could not be read, NACRE_NOTHING
/// when it has no value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_parts_get(
    parts: *const nacre_parts,
    index: usize,
    value: *mut *const u8,
    value_size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: see the crate's documentation.
        let (parts, value, value_size) = unsafe {
            (borrow(parts, "parts")?, place(value, "value")?, place(value_size, "value_size")?)
        };
        (*value, *value_size) = (std::ptr::null(), 0);
        match parts.parts.get(index) {
            None => Err(invalid("there are fewer parts")),
            Some(None) => Ok(NACRE_NOTHING),
            Some(Some(Err(error))) => Ok(refuse_part(*error)),
            Some(Some(Ok(bytes))) => {
                (*value, *value_size) = (bytes.as_ptr(), bytes.len());
                Ok(NACRE_OK)
            }
        }
    })
}

/// Frees parts and their values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_parts_free(parts: *mut nacre_parts) {
    // SAFETY: see the crate's documentation.
    unsafe { free(parts) };
}
