//! SQL++.

use crate::database::nacre;
use crate::outcome::{borrow, done, nacre_buffer, place, text};
use std::ffi::{c_char, c_int};

/// Executes a SQL++ statement over the documents. `parameters` is NULL or a JSON object with members of a request to a server's query
/// service: {"args": [1], "$name": "ann", "query_context": "default:default.shop", "readonly": true, "timeout": "10s"}. Writes the body of
/// the service's answer to `answer`, a JSON object with the rows in "results". The message of NACRE_QUERY_FAILED ends with the service's
/// code. A statement that fails may have changed documents. Free the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nacre_query(
    db: *const nacre,
    statement: *const c_char,
    parameters: *const c_char,
    answer: *mut nacre_buffer,
) -> c_int {
    done(|| {
        // SAFETY: see the crate's documentation.
        let (db, statement, answer) =
            unsafe { (borrow(db, "db")?, text(statement, "statement")?, place(answer, "answer")?) };
        *answer = nacre_buffer::of(Vec::new());
        let parameters = match parameters.is_null() {
            true => "{}",
            // SAFETY: as above.
            false => unsafe { text(parameters, "parameters") }?,
        };
        *answer = nacre_buffer::of(db.db.query_request(statement, parameters)?.into_bytes());
        Ok(())
    })
}
