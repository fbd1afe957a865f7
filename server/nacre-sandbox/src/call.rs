//! The view of an instance during one call: a state, and the call's data.

use crate::Account;
use crate::capability::{Database, Queries};
use nacre_state::{State, View, Writes};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The current item of a call, and the results of the earlier items.
pub struct CurrentItem {
    /// The position of the item in the call.
    pub index: usize,
    /// The state after the earlier items.
    pub state: State,
    /// The writes of the earlier items.
    pub writes: Writes,
}

/// An event of a call that could not be processed.
pub struct Failure {
    /// The position of the event in the call.
    pub index: usize,
    /// The reason, truncated to [`MESSAGE_CHARS_MAX`] characters.
    pub message: String,
}

impl Failure {
    pub fn new(index: u32, message: &str) -> Failure {
        let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
        Failure { index: index as usize, message }
    }
}

/// Maximum length of an error message in characters.
const MESSAGE_CHARS_MAX: usize = 2000;

/// The view of an instance during one call: the state, and access to external data.
#[derive(Default)]
pub struct CallView {
    /// The state, and the writes of the call.
    pub view: View,
    /// The database with the rights of the current request.
    pub database: Option<Arc<dyn Database>>,
    /// The queries of this call, if they differ from those of the deployment.
    pub queries: Option<Arc<dyn Queries>>,
    /// The account that is charged for the memory of the call; `None` for the account of idle instances or of the
    /// deployment.
    pub account: Option<Arc<Account>>,
    /// The tick by which the request must be answered, if it is before the deadline.
    pub ends_tick: Option<u64>,
    /// Number of items in the call.
    pub items_count: usize,
    /// The current item, if the plugin has named it. The view's other writes are those since the start of this item.
    pub current_item: Option<CurrentItem>,
    /// The items that could not be processed, as named by the plugin.
    pub failures: Vec<Failure>,
}

impl From<View> for CallView {
    fn from(view: View) -> CallView {
        CallView { view, ..CallView::default() }
    }
}

impl Deref for CallView {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl DerefMut for CallView {
    fn deref_mut(&mut self) -> &mut View {
        &mut self.view
    }
}
