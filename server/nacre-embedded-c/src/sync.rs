//! Sync with a bucket of a cluster.

use crate::database::nacre;
use crate::outcome::{
    NACRE_NOTHING, NACRE_OK, borrow, done, free, give, nacre_buffer, place, run, text,
};
use ::nacre::{SyncHandle, SyncOptions};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// A running sync.
#[expect(non_camel_case_types, reason = "the name is C's")]
pub struct nacre_sync {
    handle: SyncHandle,
}

/// Keeps the database in step with a bucket, on a separate thread, until nacre_sync_free(). `options` is JSON:
/// {"url": "https://host:18091/bucket", "user": "..", "password": "..", "collections": ["scope.collection"],
/// "conflicts": "log" | "server", "direction": "both" | "pull", "certificates": PEM, "device": "..", "allow_plain": false};
/// "conflicts" and the members after it are optional. A database can have one sync at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_sync_start(
    db: *const nacre,
    options: *const c_char,
    sync: *mut *mut nacre_sync,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, options, place) =
            unsafe { (borrow(db, "db")?, text(options, "options")?, place(sync, "sync")?) };
        *place = std::ptr::null_mut();
        let handle = db.db.sync(SyncOptions::from_json(options)?)?;
        give(place, nacre_sync { handle });
        Ok(())
    })
}

/// Returns figures as JSON: state ("offline", "connecting", "catching_up", "live" or "stopped"), reason, trouble, pulled, pushed,
/// conflicts, parked, remaining, on_the_way. Free the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_sync_status(
    sync: *const nacre_sync,
    status: *mut nacre_buffer,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (sync, place) = unsafe { (borrow(sync, "sync")?, place(status, "status")?) };
        *place = nacre_buffer::of(sync.handle.status().to_json().into_bytes());
        Ok(())
    })
}

/// Waits until the device has everything that the hub has now, and the hub has everything that the device has written: NACRE_OK,
/// or NACRE_NOTHING after `timeout_ms` milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_sync_wait(sync: *const nacre_sync, timeout_ms: u64) -> c_int {
    run(|| {
        // SAFETY: see the crate's documentation.
        let sync = unsafe { borrow(sync, "sync")? };
        match sync.handle.wait_in_step(Duration::from_millis(timeout_ms)) {
            Ok(()) => Ok(NACRE_OK),
            Err(::nacre::Error::NotInStep(_)) => Ok(NACRE_NOTHING),
            Err(error) => Err(error),
        }
    })
}

/// Returns the next event as JSON, {"event": "state" | "conflict" | "parked" | "no_collection" | "again", ..}, and waits for it
/// up to `timeout_ms` milliseconds: NACRE_OK, or NACRE_NOTHING. Free the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_sync_next_event(
    sync: *const nacre_sync,
    timeout_ms: u64,
    event: *mut nacre_buffer,
) -> c_int {
    run(|| {
        // SAFETY: see the crate's documentation.
        let (sync, place) = unsafe { (borrow(sync, "sync")?, place(event, "event")?) };
        *place = nacre_buffer::of(Vec::new());
        let Some(event) = sync.handle.next_event(Duration::from_millis(timeout_ms)) else {
            return Ok(NACRE_NOTHING);
        };
        *place = nacre_buffer::of(event.to_json().into_bytes());
        Ok(NACRE_OK)
    })
}

/// Connects at once instead of after the current pause, for example when the network is back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_sync_retry(sync: *const nacre_sync) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        unsafe { borrow(sync, "sync")? }.handle.retry_now();
        Ok(())
    })
}

/// Ends sync, and waits for its thread. The next sync sends what was not sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_sync_free(sync: *mut nacre_sync) {
    // SAFETY: see the crate's documentation.
    unsafe { free(sync) };
}
