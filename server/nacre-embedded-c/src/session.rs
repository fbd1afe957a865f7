//! Sessions of the key-value protocol: frames in, frames out. An SDK speaks to a session as it speaks to a server.

use crate::database::nacre;
use crate::outcome::{borrow, bytes, done, free, give, nacre_buffer, place};
use crate::wake::Wake;
use ::nacre::Session;
use parking_lot::Mutex;
use std::ffi::c_int;
use std::sync::Arc;

/// A session, logged in as the owner of the database, which is the bucket "default".
#[expect(non_camel_case_types, reason = "the name is C's")]
pub struct nacre_session {
    session: Mutex<Session>,
    /// Keeps the descriptor open.
    _wake: Arc<Wake>,
}

/// Opens a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_session_open(
    db: *const nacre,
    session: *mut *mut nacre_session,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, place) = unsafe { (borrow(db, "db")?, place(session, "session")?) };
        *place = std::ptr::null_mut();
        let wake = Arc::clone(&db.wake);
        let session = Mutex::new(db.db.session(move || wake.ring())?);
        give(place, nacre_session { session, _wake: Arc::clone(&db.wake) });
        Ok(())
    })
}

/// Accepts requests, the last of which may be incomplete. `responses` receives complete frames, or none: free it. More may become
/// ready later: see nacre_session_poll(). A failure ends the session, but there may be responses nevertheless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_session_receive(
    session: *const nacre_session,
    requests: *const u8,
    requests_size: usize,
    responses: *mut nacre_buffer,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (session, requests, place) = unsafe {
            (
                borrow(session, "session")?,
                bytes(requests, requests_size)?,
                place(responses, "responses")?,
            )
        };
        let mut out = Vec::new();
        let received = session.session.lock().receive(requests, &mut out);
        *place = nacre_buffer::of(out);
        received
    })
}

/// Returns responses that have become ready: free them. Call it when the descriptor of nacre_wake_fd() is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_session_poll(
    session: *const nacre_session,
    responses: *mut nacre_buffer,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (session, place) =
            unsafe { (borrow(session, "session")?, place(responses, "responses")?) };
        let mut out = Vec::new();
        let polled = session.session.lock().poll(&mut out);
        *place = nacre_buffer::of(out);
        polled
    })
}

/// Ends a session and frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_session_free(session: *mut nacre_session) {
    // SAFETY: see the crate's documentation.
    unsafe { free(session) };
}
