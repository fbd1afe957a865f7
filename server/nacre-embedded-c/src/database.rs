//! Databases.

use crate::outcome::{
    NACRE_OK, borrow, bytes, done, free, give, invalid, nacre_buffer, place, run, text,
};
use crate::wake::Wake;
use ::nacre::{Db, Error, Key, Options, StoreKind, Sync, Threads};
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// Writes are on disk within `sync_delay_us` microseconds after they return.
pub const NACRE_SYNC_AFTER: c_int = 0;
/// Writes are on disk before they return.
pub const NACRE_SYNC_ALWAYS: c_int = 1;
/// Writes are on disk after nacre_flush() and nacre_close().
pub const NACRE_SYNC_NEVER: c_int = 2;

/// The store is nacre's segmented log.
pub const NACRE_STORE_LOG: c_int = 0;
/// The store is sled, if the library was built with it.
pub const NACRE_STORE_SLED: c_int = 1;

/// The key has 32 random bytes.
pub const NACRE_KEY_BYTES: c_int = 0;
/// The key is a passphrase in UTF-8, without a zero at the end.
pub const NACRE_KEY_PASSPHRASE: c_int = 1;

/// An open database.
#[expect(non_camel_case_types, reason = "the name is C's")]
pub struct nacre {
    pub(crate) db: Db,
    pub(crate) wake: Arc<Wake>,
}

/// Options of a database. 0 selects the default of a member.
#[repr(C)]
pub struct nacre_options {
    /// sizeof(nacre_options).
    pub size: usize,
    /// NACRE_SYNC_AFTER, NACRE_SYNC_ALWAYS or NACRE_SYNC_NEVER.
    pub sync: c_int,
    /// NACRE_STORE_LOG or NACRE_STORE_SLED, for a new folder.
    pub store: c_int,
    /// Microseconds for NACRE_SYNC_AFTER; 10000 by default.
    pub sync_delay_us: u64,
    /// Memory for documents in MiB, at least 4; 64 by default.
    pub quota_mib: u64,
    /// The number of vBuckets of a new folder, 1 to 1024; 16 by default.
    pub vbuckets: u32,
    /// Bytes of a segment of the log, at least 65536; 1 MiB by default.
    pub segment_bytes: u32,
    /// Not 0: the library starts no thread, and the application calls nacre_poll().
    pub no_thread: c_int,
    /// Not 0: opens only an existing database.
    pub no_create: c_int,
}

/// Figures of a database.
#[repr(C)]
pub struct nacre_figures {
    /// sizeof(nacre_figures).
    pub size: usize,
    /// Existing documents.
    pub documents: u64,
    /// Bytes of memory used.
    pub memory_bytes: u64,
    /// Bytes of the files.
    pub disk_bytes: u64,
    /// Changes that are not on disk yet.
    pub unsaved: u64,
    /// Not 0 while writes wait for space on the disk.
    pub is_full: c_int,
}

fn options_of(given: &nacre_options) -> Result<Options, Error> {
    if given.size != size_of::<nacre_options>() {
        return Err(invalid("options.size is not sizeof(nacre_options)"));
    }
    let default = Options::default();
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    Ok(Options {
        sync: match (given.sync, given.sync_delay_us) {
            (NACRE_SYNC_AFTER, 0) => default.sync,
            (NACRE_SYNC_AFTER, delay) => Sync::After(Duration::from_micros(delay)),
            (NACRE_SYNC_ALWAYS, _) => Sync::Always,
            (NACRE_SYNC_NEVER, _) => Sync::Never,
            _ => return Err(invalid("options.sync must be one of NACRE_SYNC_*")),
        },
        store: match given.store {
            NACRE_STORE_LOG => StoreKind::Log,
            NACRE_STORE_SLED => StoreKind::Sled,
            _ => return Err(invalid("options.store must be one of NACRE_STORE_*")),
        },
        quota_mib: or(given.quota_mib, default.quota_mib),
        vbuckets: u16::try_from(or(given.vbuckets.into(), default.vbuckets.into()))
            .map_err(|_| invalid("the number of vBuckets is 1 to 1024"))?,
        segment_bytes: or(given.segment_bytes.into(), default.segment_bytes.into()) as u32,
        threads: if given.no_thread == 0 { Threads::One } else { Threads::None },
        create: given.no_create == 0,
        ..default
    })
}

/// Opens the database in the folder `path`; ":memory:" opens a new one in memory. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_open(
    path: *const c_char,
    options: *const nacre_options,
    db: *mut *mut nacre,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (path, db, options) =
            unsafe { (text(path, "path"), place(db, "db")?, options.as_ref()) };
        *db = std::ptr::null_mut();
        let options = options.map_or(Ok(Options::default()), options_of)?;
        let opened = Db::open_with(OsStr::from_bytes(path?.as_bytes()), options)?;
        give(db, nacre { db: opened, wake: Arc::default() });
        Ok(())
    })
}

unsafe fn key_of(kind: c_int, key: *const u8, key_size: usize) -> Result<Key, Error> {
    // SAFETY: see the crate's documentation.
    let given = unsafe { bytes(key, key_size)? };
    match kind {
        NACRE_KEY_BYTES => {
            let key = given.try_into().map_err(|_| invalid("a key has 32 bytes"))?;
            Ok(Key::Bytes(key))
        }
        NACRE_KEY_PASSPHRASE => {
            let text = std::str::from_utf8(given).map_err(|_| invalid("a passphrase is UTF-8"))?;
            Ok(Key::Passphrase(text.to_owned()))
        }
        _ => Err(invalid("key_kind must be NACRE_KEY_BYTES or NACRE_KEY_PASSPHRASE")),
    }
}

/// Opens the encrypted database in the folder `path` with its key, which is NACRE_KEY_BYTES or NACRE_KEY_PASSPHRASE. A new folder
/// is encrypted with it. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_open_with_key(
    path: *const c_char,
    options: *const nacre_options,
    key_kind: c_int,
    key: *const u8,
    key_size: usize,
    db: *mut *mut nacre,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (path, db, options, key) = unsafe {
            (
                text(path, "path"),
                place(db, "db")?,
                options.as_ref(),
                key_of(key_kind, key, key_size),
            )
        };
        *db = std::ptr::null_mut();
        let options = options.map_or(Ok(Options::default()), options_of)?;
        let options = Options { key: Some(key?), ..options };
        let opened = Db::open_with(OsStr::from_bytes(path?.as_bytes()), options)?;
        give(db, nacre { db: opened, wake: Arc::default() });
        Ok(())
    })
}

/// Replaces the key of an encrypted database. From then on only the new key opens it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_rekey(
    db: *const nacre,
    key_kind: c_int,
    key: *const u8,
    key_size: usize,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, key) = unsafe { (borrow(db, "db")?, key_of(key_kind, key, key_size)?) };
        db.db.rekey(&key)
    })
}

/// Stores all unsaved writes, closes the database and frees the handle, also on failure. Its collections, sessions and listeners
/// fail with NACRE_CLOSED from then on, and must be freed separately.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_close(db: *mut nacre) -> c_int {
    if db.is_null() {
        return NACRE_OK;
    }
    // SAFETY: see the crate's documentation.
    let closed = done(|| unsafe { borrow(db, "db") }?.db.close());
    // SAFETY: as above.
    unsafe { free(db) };
    closed
}

/// Stores all writes that have returned, and waits until they survive a power cut.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_flush(db: *const nacre) -> c_int {
    // SAFETY: see the crate's documentation.
    done(|| unsafe { borrow(db, "db") }?.db.flush())
}

/// Frees as much disk space as possible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_compact(db: *const nacre) -> c_int {
    // SAFETY: see the crate's documentation.
    done(|| unsafe { borrow(db, "db") }?.db.compact())
}

/// Does the work that is due, for a database without a thread. Writes to `wait_us` the microseconds until more work is due, or
/// UINT64_MAX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_poll(db: *const nacre, wait_us: *mut u64) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, wait_us) = unsafe { (borrow(db, "db")?, wait_us.as_mut()) };
        let wait = db.db.poll()?.map_or(u64::MAX, |wait| wait.as_micros() as u64);
        wait_us.into_iter().for_each(|place| *place = wait);
        Ok(())
    })
}

/// Reads the figures of the database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_stats(db: *const nacre, figures: *mut nacre_figures) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, figures) = unsafe { (borrow(db, "db")?, place(figures, "figures")?) };
        let size = size_of::<nacre_figures>();
        if figures.size != size {
            return Err(invalid("figures.size is not sizeof(nacre_figures)"));
        }
        let status = db.db.status();
        *figures = nacre_figures {
            size,
            documents: status.documents,
            memory_bytes: status.memory_bytes,
            disk_bytes: status.disk_bytes,
            unsaved: status.unsaved,
            is_full: status.is_full.into(),
        };
        Ok(())
    })
}

/// Returns a descriptor that becomes readable when a session or a listener of the database may have news. Wait for it, call
/// nacre_wake_clear(), and then check each session and listener. It is closed with the last handle that needs it. Returns -1 on
/// failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_wake_fd(db: *const nacre) -> c_int {
    let mut fd = -1;
    done(|| {
        // SAFETY: see the crate's documentation.
        fd = unsafe { borrow(db, "db") }?.wake.fd()?;
        Ok(())
    });
    fd
}

/// Makes the descriptor of nacre_wake_fd() unreadable until there is more news.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_wake_clear(db: *const nacre) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let db = unsafe { borrow(db, "db") }?;
        db.wake.clear();
        Ok(())
    })
}

/// Creates a scope.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_scope_create(db: *const nacre, scope: *const c_char) -> c_int {
    // SAFETY: see the crate's documentation.
    done(|| unsafe { borrow(db, "db")?.db.create_scope(text(scope, "scope")?) })
}

/// Drops a scope, its collections and their documents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_scope_drop(db: *const nacre, scope: *const c_char) -> c_int {
    // SAFETY: see the crate's documentation.
    done(|| unsafe { borrow(db, "db")?.db.drop_scope(text(scope, "scope")?) })
}

/// Creates a collection. Its documents live for at most `max_ttl_s` seconds; 0 for no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_collection_create(
    db: *const nacre,
    scope: *const c_char,
    name: *const c_char,
    max_ttl_s: u32,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, scope, name) =
            unsafe { (borrow(db, "db")?, text(scope, "scope")?, text(name, "name")?) };
        db.db.create_collection(scope, name, max_ttl_s)
    })
}

/// Drops a collection and its documents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_collection_drop(
    db: *const nacre,
    scope: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, scope, name) =
            unsafe { (borrow(db, "db")?, text(scope, "scope")?, text(name, "name")?) };
        db.db.drop_collection(scope, name)
    })
}

/// Returns the collections as JSON: an array of "scope.collection".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_collections(db: *const nacre, names: *mut nacre_buffer) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, names) = unsafe { (borrow(db, "db")?, place(names, "names")?) };
        *names = nacre_buffer::of(serde_json::json!(db.db.collections()).to_string().into());
        Ok(())
    })
}

/// Answers an SDK's request about scopes and collections, about views, or for SQL++. `method` and `path` are those of HTTP, `body` is a
/// form, or JSON for views and SQL++. Writes the HTTP status to `http_status` and the body of the answer to `answer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_manage(
    db: *const nacre,
    method: *const c_char,
    path: *const c_char,
    body: *const u8,
    body_size: usize,
    http_status: *mut c_int,
    answer: *mut nacre_buffer,
) -> c_int {
    run(|| {
        // SAFETY: see the crate's documentation.
        let (db, method, path, body, http_status, answer) = unsafe {
            (
                borrow(db, "db")?,
                text(method, "method")?,
                text(path, "path")?,
                bytes(body, body_size)?,
                place(http_status, "http_status")?,
                place(answer, "answer")?,
            )
        };
        let (status, text) = db.db.manage(method, path, body)?;
        *http_status = status.into();
        *answer = nacre_buffer::of(text.into_bytes());
        Ok(NACRE_OK)
    })
}
