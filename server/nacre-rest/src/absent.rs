//! Settings of Couchbase's features that nacre lacks: single sign-on, checks of a directory, limits of alerts, parameters of
//! memcached. Tools can read them, and repeat their values. Another value is refused by the name of its field.

use super::body::{done, ok};
use super::routes::{ADMINISTER, READ, Route, USERS, get, post, ready};
use super::settings::{NO_DIRECTORY, NO_MAIL, confirm};
use serde_json::{Value, json};

const SAML: &str = "/settings/saml";
const LIMITS: &str = "/settings/alerts/limits";
const MEMCACHED: &str = "/pools/default/settings/memcached/global";

const NO_PROVIDER: &str =
    "The server asks no identity provider: its users are below /settings/rbac/users.";
const NO_MEMCACHED: &str = "The options of nacre serve set the limits of a node.";

pub(super) const ROUTES: &[Route] = &[
    get(SAML, USERS, |_| ready(Ok(ok(&saml())))),
    post(SAML, USERS, |call| ready(confirm(&call, &saml(), NO_PROVIDER))),
    // Couchbase answers a failed check with 200 as well.
    post("/settings/ldap/validate/{check}", USERS, |_| {
        ready(Ok(ok(&json!({"result": "error", "reason": NO_DIRECTORY}))))
    }),
    // A cache of a directory's answers that does not exist is empty.
    post("/settings/invalidateLDAPCache", USERS, |_| ready(Ok(done()))),
    get(LIMITS, READ, |_| ready(Ok(ok(&limits())))),
    post(LIMITS, ADMINISTER, |call| ready(confirm(&call, &limits(), NO_MAIL))),
    get(MEMCACHED, READ, |_| ready(Ok(ok(&json!({}))))),
    post(MEMCACHED, ADMINISTER, |call| ready(confirm(&call, &json!({}), NO_MEMCACHED))),
];

fn saml() -> Value {
    json!({"enabled": false, "idpMetadataURL": "", "idpMetadataOrigin": "http"})
}

/// Couchbase's default limits, in percent. The server raises no alerts.
fn limits() -> Value {
    json!({"maxOverheadPerc": 50, "maxDiskUsedPerc": 90, "maxIndexerRamPerc": 75})
}
