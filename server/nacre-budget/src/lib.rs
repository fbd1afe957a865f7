//! Memory that no bucket quota covers: its holders, amounts and purposes.
//!
//! ```text
//! Budget (limit) ─┬─ Account "ann"  (share) ─┬─ Permit  request   1 MiB
//!                 │                          └─ Permit  instance 40 MiB
//!                 └─ Account "bob"  (share) ─── Permit  answer    2 MiB
//! ```
//!
//! A [`Permit`] holds bytes and returns them when it is dropped. It can grow while both its account and the whole
//! budget have room. An account with few bytes is never refused, so that a user who takes all memory cannot block
//! others from small requests.
//!
//! Nothing is reserved in advance, and nothing waits here: a refused caller replies to its client, or tries again.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Bytes that an account can always take, even if the budget is full.
pub const ACCOUNT_BYTES_MIN: usize = 4 << 20;

/// Purpose of held memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Requests that are being read or are waiting.
    Request,
    /// Replies that their client has not received yet.
    Answer,
    /// Instances of plugins that answer requests.
    Instance,
    /// Instances that wait for their next request.
    Idle,
    /// Changes of open transactions.
    Transaction,
    /// Instances of plugins that follow documents.
    Writer,
    /// State of plugins.
    State,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Purpose; 7] = [
        Purpose::Request,
        Purpose::Answer,
        Purpose::Instance,
        Purpose::Idle,
        Purpose::Transaction,
        Purpose::Writer,
        Purpose::State,
    ];

    /// Returns the name in metrics: one word.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Request => "request",
            Purpose::Answer => "answer",
            Purpose::Instance => "instance",
            Purpose::Idle => "idle",
            Purpose::Transaction => "transaction",
            Purpose::Writer => "writer",
            Purpose::State => "state",
        }
    }
}

/// The reason why memory was refused. The same request may succeed once others have returned memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// The account has used its whole share.
    #[error("{account} already uses the {} MiB that it may have of the memory for {of}", .bytes_max >> 20)]
    Account {
        /// The user or deployment.
        account: String,
        /// Name of the budget.
        of: &'static str,
        /// The share of one account, in bytes.
        bytes_max: usize,
    },
    /// All accounts together have used the whole budget.
    #[error("the {} MiB that this node has for {of} are in use", .bytes_max >> 20)]
    All {
        /// Name of the budget.
        of: &'static str,
        /// The limit of the budget, in bytes.
        bytes_max: usize,
    },
}

/// A shared amount of memory. Clones refer to the same budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Total>);

#[derive(Debug)]
struct Total {
    of: &'static str,
    limit: AtomicUsize,
    held: AtomicUsize,
    by_purpose: [AtomicUsize; Purpose::ALL.len()],
    refusals: AtomicU64,
    accounts: Mutex<BTreeMap<Arc<str>, Weak<Account>>>,
}

impl Budget {
    /// Creates a budget without a limit. `of` is its name in messages, such as "requests and answers".
    pub fn new(of: &'static str) -> Budget {
        Budget(Arc::new(Total {
            of,
            limit: AtomicUsize::new(usize::MAX),
            held: AtomicUsize::new(0),
            by_purpose: Default::default(),
            refusals: AtomicU64::new(0),
            accounts: Mutex::default(),
        }))
    }

    /// Sets the limit in bytes. Bytes that are already held beyond the limit stay until they are returned.
    pub fn set_limit(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns the limit in bytes; `usize::MAX` if there is none.
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Returns true if more than half of the limit is in use: currently unneeded memory should then be returned.
    pub fn is_tight(&self) -> bool {
        self.held() > self.limit() / 2
    }

    /// Returns the number of bytes in use.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes in use for a purpose.
    pub fn held_for(&self, purpose: Purpose) -> usize {
        self.0.by_purpose[purpose as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of refusals.
    pub fn refusals(&self) -> u64 {
        self.0.refusals.load(Ordering::Relaxed)
    }

    /// Returns the account `name`. Creates it with this `limit` if it does not exist; an existing account keeps its
    /// limit.
    pub fn account(&self, name: &str, limit: AccountLimit) -> Arc<Account> {
        let mut accounts = self.0.accounts.lock();
        if let Some(known) = accounts.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let name: Arc<str> = name.into();
        let account = Arc::new(Account {
            total: Arc::clone(&self.0),
            name: Arc::clone(&name),
            limit,
            held: AtomicUsize::new(0),
        });
        accounts.insert(name, Arc::downgrade(&account));
        account
    }
}

/// The limit of one account within a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountLimit {
    /// One n-th of the budget, for this n of at least 1.
    OneOf(usize),
    /// No limit, not even that of the budget: for memory that cannot be refused.
    None,
}

/// The bytes that one user or one deployment holds of a budget.
#[derive(Debug)]
pub struct Account {
    total: Arc<Total>,
    name: Arc<str>,
    limit: AccountLimit,
    held: AtomicUsize,
}

impl Account {
    /// Returns the name of the account.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes that the account holds.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns true if the account can take no more bytes beyond its minimum. Costs one atomic load while it holds few
    /// bytes.
    pub fn is_exhausted(&self) -> bool {
        let held = self.held();
        held > ACCOUNT_BYTES_MIN
            && self.limit != AccountLimit::None
            && (held >= self.bytes_max()
                || self.total.held.load(Ordering::Relaxed) >= self.total_limit())
    }

    /// Returns the number of bytes that the account can still take.
    pub fn room(&self) -> usize {
        if self.limit == AccountLimit::None {
            return usize::MAX;
        }
        let held = self.held();
        let of_all = self.total_limit().saturating_sub(self.total.held.load(Ordering::Relaxed));
        let minimum = ACCOUNT_BYTES_MIN.saturating_sub(held);
        self.bytes_max().saturating_sub(held).min(of_all).max(minimum)
    }

    /// Returns a permit of this account for no bytes yet.
    pub fn permit(self: &Arc<Account>, purpose: Purpose) -> Permit {
        Permit { account: Arc::clone(self), purpose, bytes: 0 }
    }

    /// Returns a permit for this many bytes.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn take(self: &Arc<Account>, purpose: Purpose, bytes: usize) -> Result<Permit, Exceeded> {
        let mut permit = self.permit(purpose);
        permit.grow(bytes)?;
        Ok(permit)
    }

    fn total_limit(&self) -> usize {
        self.total.limit.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes of the account.
    pub fn bytes_max(&self) -> usize {
        match self.limit {
            AccountLimit::OneOf(parts) => {
                (self.total_limit() / parts.max(1)).max(ACCOUNT_BYTES_MIN)
            }
            AccountLimit::None => usize::MAX,
        }
    }

    fn add(&self, purpose: Purpose, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.total.held.fetch_add(bytes, Ordering::Relaxed);
        self.total.by_purpose[purpose as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes to the account only. Returns the previous number of bytes.
    fn try_hold(&self, bytes: usize) -> Result<usize, Exceeded> {
        let bytes_max = self.bytes_max();
        let fits = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= bytes_max);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| {
            self.total.refusals.fetch_add(1, Ordering::Relaxed);
            let (account, of) = (self.name.to_string(), self.total.of);
            Exceeded::Account { account, of, bytes_max }
        })
    }

    fn try_add(&self, purpose: Purpose, bytes: usize) -> Result<(), Exceeded> {
        let before = self.try_hold(bytes)?;
        let limit = match self.limit {
            AccountLimit::None => usize::MAX,
            AccountLimit::OneOf(_) if before + bytes <= ACCOUNT_BYTES_MIN => usize::MAX,
            AccountLimit::OneOf(_) => self.total_limit(),
        };
        let fits = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= limit);
        if self.total.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            self.total.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(Exceeded::All { of: self.total.of, bytes_max: limit });
        }
        self.total.by_purpose[purpose as usize].fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn sub(&self, purpose: Purpose, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.total.held.fetch_sub(bytes, Ordering::Relaxed);
        self.total.by_purpose[purpose as usize].fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut accounts = self.total.accounts.lock();
        // Another account of the same name may have been created meanwhile.
        if accounts.get(&self.name).is_some_and(|known| known.strong_count() == 0) {
            accounts.remove(&self.name);
        }
    }
}

/// Held bytes of an account, which are returned on drop.
#[derive(Debug)]
pub struct Permit {
    account: Arc<Account>,
    purpose: Purpose,
    bytes: usize,
}

impl Permit {
    /// Returns the number of held bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the account that the bytes belong to.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// [`Exceeded`], with the permit unchanged.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exceeded> {
        if bytes > 0 {
            self.account.try_add(self.purpose, bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Sets the number of held bytes.
    ///
    /// # Errors
    /// [`Exceeded`], only if the number grows; the permit is then unchanged.
    pub fn try_set(&mut self, bytes: usize) -> Result<(), Exceeded> {
        if bytes > self.bytes {
            return self.grow(bytes - self.bytes);
        }
        self.set(bytes);
        Ok(())
    }

    /// Sets the number of held bytes, even beyond the limit, for memory that is already in use.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.account.add(self.purpose, bytes - self.bytes);
        } else {
            self.account.sub(self.purpose, self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Transfers the bytes to an account and a purpose.
    ///
    /// # Errors
    /// [`Exceeded`] if the account has no room; nothing has changed then.
    pub fn transfer_to(
        &mut self,
        account: &Arc<Account>,
        purpose: Purpose,
    ) -> Result<(), Exceeded> {
        if Arc::ptr_eq(&self.account, account) && self.purpose == purpose {
            return Ok(());
        }
        if !Arc::ptr_eq(&self.account.total, &account.total) {
            *self = account.take(purpose, self.bytes)?;
            return Ok(());
        }
        // The total of the budget is unchanged.
        account.try_hold(self.bytes)?;
        self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
        let by_purpose = &account.total.by_purpose;
        by_purpose[purpose as usize].fetch_add(self.bytes, Ordering::Relaxed);
        by_purpose[self.purpose as usize].fetch_sub(self.bytes, Ordering::Relaxed);
        (self.account, self.purpose) = (Arc::clone(account), purpose);
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.sub(self.purpose, self.bytes);
        }
    }
}

/// The budgets of a node.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// For requests and answers, by user.
    pub requests: Budget,
    /// For the state of plugins, by deployment.
    pub state: Budget,
    /// For the instances of plugins that follow documents, by deployment. This is a separate budget because the
    /// instances wait until there is room, whereas a state without room stops: a state that fills the memory must not
    /// make its own instance wait instead.
    pub writers: Budget,
}

impl Default for Budgets {
    /// Creates budgets without limits.
    fn default() -> Budgets {
        Budgets {
            requests: Budget::new("requests and answers"),
            state: Budget::new("the state of plugins"),
            writers: Budget::new("plugins that follow documents"),
        }
    }
}

/// The share of the memory for requests that one user may hold: a quarter.
pub const OF_USER: AccountLimit = AccountLimit::OneOf(4);
/// The share of the memory for requests that idle instances may hold: an eighth.
const OF_IDLE: AccountLimit = AccountLimit::OneOf(8);
/// The share of the memory for requests that work for other nodes, and for parts of requests, may hold: half.
const OF_PARTS: AccountLimit = AccountLimit::OneOf(2);
/// The share of the memory for state, and of that for writers, that one deployment may hold: half.
pub const OF_DEPLOYMENT: AccountLimit = AccountLimit::OneOf(2);

impl Budgets {
    /// Returns the account of a user's requests and replies.
    pub fn of_user(&self, name: &str) -> Arc<Account> {
        self.requests.account(name, OF_USER)
    }

    /// Returns the account of memory that belongs to no user: parts of requests from other nodes, and of requests that
    /// several partitions answer. No user has a name that begins with `@`.
    pub fn of_parts(&self) -> Arc<Account> {
        self.requests.account("@parts", OF_PARTS)
    }

    /// Returns the account of other nodes' connections, which are never refused memory.
    pub fn of_nodes(&self) -> Arc<Account> {
        self.requests.account("@nodes", AccountLimit::None)
    }

    /// Returns the account of plugin instances that wait for their next request.
    pub fn of_idle(&self) -> Arc<Account> {
        self.requests.account("@idle", OF_IDLE)
    }

    /// Returns the account of the state of a deployment.
    pub fn of_state(&self, deployment: &str) -> Arc<Account> {
        self.state.account(deployment, OF_DEPLOYMENT)
    }

    /// Returns the account of a deployment's instances that follow documents.
    pub fn of_writers(&self, deployment: &str) -> Arc<Account> {
        self.writers.account(deployment, OF_DEPLOYMENT)
    }

    /// Returns all budgets with their names in metrics.
    pub fn all(&self) -> [(&'static str, &Budget); 3] {
        [("requests", &self.requests), ("state", &self.state), ("writers", &self.writers)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn budget(limit_mib: usize) -> Budget {
        let budget = Budget::new("tests");
        budget.set_limit(limit_mib * MIB);
        budget
    }

    #[test]
    fn one_account_gets_its_share_and_all_together_no_more_than_the_limit() {
        let budget = budget(100);
        let [ann, bob] = ["ann", "bob"].map(|name| budget.account(name, AccountLimit::OneOf(2)));
        let mut of_ann = ann.take(Purpose::Request, 50 * MIB).unwrap();
        let error = of_ann.grow(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ann already uses the 50 MiB that it may have of the memory for tests"
        );
        let of_bob = bob.take(Purpose::Answer, 48 * MIB).unwrap();
        let cid = budget.account("cid", AccountLimit::OneOf(2));
        let error = cid.take(Purpose::Answer, 6 * MIB).unwrap_err();
        assert_eq!(error.to_string(), "the 100 MiB that this node has for tests are in use");
        assert_eq!(budget.held_for(Purpose::Answer), 48 * MIB);
        drop(of_bob);
        assert!(cid.take(Purpose::Answer, 6 * MIB).is_ok());
        assert_eq!((budget.held(), budget.refusals()), (50 * MIB, 2));
    }

    #[test]
    fn an_account_that_holds_little_is_not_refused() {
        let budget = budget(100);
        let mut rest = budget.account("all", AccountLimit::None).permit(Purpose::Request);
        rest.set(200 * MIB);
        let ann = budget.account("ann", AccountLimit::OneOf(4));
        let mut permit = ann.take(Purpose::Request, ACCOUNT_BYTES_MIN).unwrap();
        assert_eq!(ann.room(), 0);
        assert!(permit.grow(1).is_err() && !ann.is_exhausted());
        permit.set(ACCOUNT_BYTES_MIN + 1);
        assert!(ann.is_exhausted());
        permit.set(0);
        assert_eq!(ann.room(), ACCOUNT_BYTES_MIN);
    }

    #[test]
    fn transferred_memory_is_counted_once() {
        let budget = budget(100);
        let [ann, bob] = ["ann", "bob"].map(|name| budget.account(name, AccountLimit::OneOf(4)));
        let mut permit = ann.take(Purpose::Instance, 20 * MIB).unwrap();
        permit.transfer_to(&bob, Purpose::Idle).unwrap();
        assert_eq!((ann.held(), bob.held(), budget.held()), (0, 20 * MIB, 20 * MIB));
        let mut other = ann.take(Purpose::Instance, 10 * MIB).unwrap();
        assert!(other.transfer_to(&bob, Purpose::Idle).is_err());
        assert_eq!((ann.held(), bob.held()), (10 * MIB, 20 * MIB));
        drop((permit, other));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn accounts_go_with_their_last_holder() {
        let budget = budget(100);
        let ann = budget.account("ann", AccountLimit::OneOf(4));
        let permit = ann.take(Purpose::Request, 1).unwrap();
        drop(ann);
        assert_eq!(budget.account("ann", AccountLimit::OneOf(4)).held(), 1);
        drop(permit);
        assert!(budget.0.accounts.lock().is_empty());
    }
}
