//! Users and their rights: the owner, and tokens of the owner. Without an owner, every program of this machine has all
//! rights.

use crate::tokens;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use nacre_auth::{Check, Keyspace, Login, Privilege, Role, SALT_BYTES, Throttle, User, Users};
use nacre_http::body::{
    Reply, basic, bearer, busy_with_passwords, unauthorized, wrong_login, wrong_token,
};
use nacre_http::problem;
use nacre_store::Space;
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// Passwords that are hashed at the same time.
const HASHES_MAX: usize = 2;
/// Maximum number of passwords that wait to be hashed.
const WAITING_MAX: usize = 64;

/// The user of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A program of this machine, when no owner is set.
    Anybody,
    /// The owner, or a token of the owner.
    Known(Login),
}

impl Caller {
    /// Returns the user name for memory accounts.
    pub fn name(&self) -> &str {
        match self {
            Caller::Anybody => "anybody",
            Caller::Known(login) => nacre_auth::person(&login.user),
        }
    }

    /// Returns true if the login is a token.
    pub fn is_token(&self) -> bool {
        matches!(self, Caller::Known(login) if nacre_auth::user_of_token(&login.user).is_some())
    }
}

/// The users, and the store of their tokens.
pub(crate) struct Access {
    /// `None` without an owner.
    users: Option<RwLock<Users>>,
    tokens: Arc<dyn Space>,
    throttle: Mutex<Throttle>,
    hashes: Semaphore,
    waiting: Semaphore,
    started: Instant,
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("random numbers: {error}"))?;
    Ok(bytes)
}

/// Returns the Unix time in seconds.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Access {
    /// Creates the owner from a name and password, and reads the tokens.
    pub fn open(login: Option<(&str, &str)>, tokens: Arc<dyn Space>) -> Result<Access, String> {
        let users = match login {
            None => None,
            Some((name, password)) => {
                let mut users = Users::new(random()?);
                let salt: [u8; SALT_BYTES] = random()?;
                let mut owner = User::new(name, password, vec![Role::admin()], salt);
                owner.tokens = tokens::load(&*tokens, name, unix_s())?;
                users.put(owner);
                Some(RwLock::new(users))
            }
        };
        Ok(Access {
            users,
            tokens,
            throttle: Mutex::default(),
            hashes: Semaphore::new(HASHES_MAX),
            waiting: Semaphore::new(WAITING_MAX),
            started: Instant::now(),
        })
    }

    /// Returns the user of a request, from its header `Authorization`.
    ///
    /// # Errors
    /// 401 without a valid login, 503 when too many passwords are being checked.
    pub async fn login(
        &self,
        from: IpAddr,
        authorization: Option<&HeaderValue>,
    ) -> Result<Caller, Reply> {
        let Some(users) = &self.users else { return Ok(Caller::Anybody) };
        let value = authorization.ok_or_else(unauthorized)?.as_bytes();
        if let Some(text) = bearer(value) {
            let login = users.read().login_by_token(text, unix_s());
            return login.map(Caller::Known).ok_or_else(wrong_token);
        }
        let (name, password) = basic(value).ok_or_else(unauthorized)?;
        let check = users.read().check(&name, &password);
        match check {
            Check::Granted(login) => return Ok(Caller::Known(login)),
            Check::Denied => {}
            Check::Hash(check) => {
                let Ok(_waits) = self.waiting.try_acquire() else {
                    return Err(busy_with_passwords());
                };
                let Ok(_hashes) = self.hashes.acquire().await else {
                    return Err(busy_with_passwords());
                };
                let checked =
                    nacre_http::body::blocking("the check of a password", move || check.run());
                if let Some(login) = checked.await? {
                    return Ok(Caller::Known(login));
                }
            }
        }
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let failure = self.throttle.lock().fail(from, now_ns);
        if let Some(count) = failure.report {
            eprintln!("failed logins from {from}: {count}");
        }
        tokio::time::sleep(Duration::from_nanos(failure.delay_ns)).await;
        Err(wrong_login())
    }

    /// Returns true while the login is valid.
    pub fn holds(&self, caller: &Caller) -> bool {
        match (caller, &self.users) {
            (Caller::Anybody, users) => users.is_none(),
            (Caller::Known(login), Some(users)) => users.read().holder(login).is_some(),
            (Caller::Known(_), None) => false,
        }
    }

    /// Returns true if a user has a right in a keyspace.
    pub fn may(&self, caller: &Caller, privilege: Privilege, place: Keyspace<'_>) -> bool {
        self.asks(caller, |user| user.may(privilege, place))
    }

    /// Returns true if a user may see a keyspace.
    pub fn sees(&self, caller: &Caller, place: Keyspace<'_>) -> bool {
        self.asks(caller, |user| user.may_see(place))
    }

    fn asks(&self, caller: &Caller, ask: impl FnOnce(&User) -> bool) -> bool {
        match (caller, &self.users) {
            (Caller::Anybody, users) => users.is_none(),
            (Caller::Known(login), Some(users)) => users.read().holder(login).is_some_and(ask),
            (Caller::Known(_), None) => false,
        }
    }

    /// Refuses a user without a right.
    ///
    /// # Errors
    /// 403 when the user lacks the right.
    pub fn require(
        &self,
        caller: &Caller,
        privilege: Privilege,
        place: Keyspace<'_>,
    ) -> Result<(), Reply> {
        match self.may(caller, privilege, place) {
            true => Ok(()),
            false => Err(forbidden(privilege)),
        }
    }

    /// Returns the users; `None` without an owner.
    pub fn users(&self) -> Option<&RwLock<Users>> {
        self.users.as_ref()
    }

    /// Returns the store of the tokens.
    pub fn tokens(&self) -> &dyn Space {
        &*self.tokens
    }
}

fn forbidden(privilege: Privilege) -> Reply {
    let mut more = Map::new();
    more.insert("permissions".into(), json!([format!("{privilege:?}")]));
    let detail = "Forbidden. User needs one of the following permissions";
    problem::of(StatusCode::FORBIDDEN, "forbidden", detail, more)
}
