//! What an instance sees during one call: a state, and what the call has beyond it.

use crate::Account;
use crate::capability::{Database, Queries};
use nacre_state::{State, View, Writes};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The item of a call that is at work, and what the items before it have left.
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

/// What an instance sees during one call: the state, and who answers for what is beyond it.
#[derive(Default)]
pub struct CallView {
    /// The state, and what the call writes to it.
    pub view: View,
    /// The database as the request that is answered may see it.
    pub database: Option<Arc<dyn Database>>,
    /// The queries of this call, if they are not those of the whole deployment.
    pub queries: Option<Arc<dyn Queries>>,
    /// The account that pays for the memory of the call; none for that of idle instances or of the deployment.
    pub account: Option<Arc<Account>>,
    /// The tick at which the request has to be answered, when that is before the deadline.
    pub ends_tick: Option<u64>,
    /// How many items the call has.
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
