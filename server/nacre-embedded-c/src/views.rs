//! Views.

use crate::database::nacre;
use crate::outcome::{borrow, done, nacre_buffer, place, text};
use ::nacre::ViewQuery;
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// Creates or replaces a design document, in JSON: {"collection": "scope.collection", "views": {"by_name": {"map": "function (doc,
/// meta) {..}", "reduce": "_count"}}}; "collection" and "reduce" are optional. Compiles the functions, and refuses invalid ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_design_put(
    db: *const nacre,
    name: *const c_char,
    document: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, name, document) =
            unsafe { (borrow(db, "db")?, text(name, "name")?, text(document, "document")?) };
        db.db.put_design_document(name, document)
    })
}

/// Drops a design document and its rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_design_drop(db: *const nacre, name: *const c_char) -> c_int {
    // SAFETY: see the crate's documentation.
    done(|| unsafe { borrow(db, "db")?.db.drop_design_document(text(name, "name")?) })
}

/// Queries a view. `parameters` is NULL or the query string of the same request to a server, such as "group=true&limit=10"; keys are
/// JSON, percent-encoded. First brings the rows up to date, unless "stale=ok" or "stale=update_after" is among them; this may take up
/// to `timeout_ms` milliseconds, 0 for no limit. Writes JSON to `answer`: {"total_rows": 1, "rows": [{"id": .., "key": .., "value":
/// ..}]}. The calling thread needs 512 KiB of free stack. Free the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_view_query(
    db: *const nacre,
    design: *const c_char,
    view: *const c_char,
    parameters: *const c_char,
    timeout_ms: u64,
    answer: *mut nacre_buffer,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, design, view, answer) = unsafe {
            (
                borrow(db, "db")?,
                text(design, "design")?,
                text(view, "view")?,
                place(answer, "answer")?,
            )
        };
        *answer = nacre_buffer::of(Vec::new());
        let parameters = match parameters.is_null() {
            true => "",
            // SAFETY: as above.
            false => unsafe { text(parameters, "parameters") }?,
        };
        let mut query = ViewQuery::from_parameters(parameters)?;
        if timeout_ms > 0 {
            query = query.timeout(Duration::from_millis(timeout_ms));
        }
        *answer = nacre_buffer::of(db.db.query_view(design, view, &query)?);
        Ok(())
    })
}

/// Brings the rows of all views up to date, so that queries with "stale=ok" return what was written before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_views_update(db: *const nacre) -> c_int {
    // SAFETY: see the crate's documentation.
    done(|| unsafe { borrow(db, "db") }?.db.update_views())
}
