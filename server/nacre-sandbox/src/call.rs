//! The view of an instance during one call: a state, and the call's data.

use crate::Account;
use crate::capability::{Database, Queries};
use nacre_state::{State, View, Writes};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The current item of a call, and the results of the items before it.
pub struct Turn {
    /// The position of the item in the call.
    pub index: usize,
    /// The state as the items before it left it.
    pub state: State,
    /// The writes of the items before it.
    pub writes: Writes,
}

/// An event of a call that could not be processed.
pub struct Failure {
    /// The position of the event in the call.
    pub index: usize,
    /// The reason, at most [`MESSAGE_CHARS_MAX`] characters.
    pub message: String,
}

impl Failure {
    pub fn new(index: u32, message: &str) -> Failure {
        let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
        Failure { index: index as usize, message }
    }
}

/// Characters of an error message that are kept.
const MESSAGE_CHARS_MAX: usize = 2000;

/// The view of an instance during one call: the state, and access to the outside.
#[derive(Default)]
pub struct CallView {
    /// The state, and the writes of the call to it.
    pub view: View,
    /// The database as the request that is answered may see it.
    pub database: Option<Arc<dyn Database>>,
    /// The queries of this call, if they are not those of the whole deployment.
    pub queries: Option<Arc<dyn Queries>>,
    /// The account that pays for the memory of the call; none for that of idle instances or of the deployment.
    pub account: Option<Arc<Account>>,
    /// The tick at which the request has to be answered, when that is before the deadline.
    pub ends_tick: Option<u64>,
    /// Number of items of the call.
    pub items_count: usize,
    /// The item that is at work, when the plugin has named it. The other writes of the view are those since it began.
    pub turn: Option<Turn>,
    /// The items that could not be processed, as far as the plugin has named them.
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
