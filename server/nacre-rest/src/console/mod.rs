//! The web console over HTTP: its files, browser sessions, one origin for all services, a stream of measurements, and documents.

mod documents;
mod files;
mod one_origin;
mod series;
mod sessions;
mod stream;

use super::routes::{READ_STATS, Route, delete, get, post};
use nacre_http::Access;

pub(super) use files::{OfConsole, POLICY, file};
pub(super) use one_origin::target;
pub(super) use sessions::{Renewal, at_login, hides_challenge, is_of_console, session_of};

const DOCUMENTS: &str = "/pools/default/buckets/{bucket}/docs";
const DOCUMENT: &str = "/pools/default/buckets/{bucket}/docs/{id}";
const IN_COLLECTION: &str =
    "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs";
const ONE_IN_COLLECTION: &str =
    "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs/{id}";

pub(super) const ROUTES: &[Route] = &[
    post("/uilogout", Access::Login, |call| Box::pin(sessions::logout(call))),
    get("/_nacre/series", READ_STATS, |call| Box::pin(series::answer(call))),
    get(stream::PATH, READ_STATS, |call| Box::pin(stream::answer(call))),
    get(DOCUMENTS, Access::Handler, |call| Box::pin(documents::list(call))),
    get(DOCUMENT, Access::Handler, |call| Box::pin(documents::show(call))),
    post(DOCUMENT, Access::Handler, |call| Box::pin(documents::store(call))),
    delete(DOCUMENT, Access::Handler, |call| Box::pin(documents::remove(call))),
    get(IN_COLLECTION, Access::Handler, |call| Box::pin(documents::list(call))),
    get(ONE_IN_COLLECTION, Access::Handler, |call| Box::pin(documents::show(call))),
    post(ONE_IN_COLLECTION, Access::Handler, |call| Box::pin(documents::store(call))),
    delete(ONE_IN_COLLECTION, Access::Handler, |call| Box::pin(documents::remove(call))),
];
