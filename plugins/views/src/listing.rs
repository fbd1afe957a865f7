//! The answer of one partition, sent piece by piece because it may exceed the available memory.

use crate::answer::ValidQuery;
use crate::body::{Body, Failure, Head, LOCAL};
use crate::design::View;
use crate::mask::Mask;
use crate::reduction::result_json;
use crate::scan::{Item, ItemConsumer, Scan, with_tree};
use nacre_js::Functions;
use nacre_plugin::btree::Step;
use nacre_plugin::{Fault, State};
use std::cell::RefCell;

/// The part of an answer that has not been sent yet.
pub struct Listing {
    asked: ValidQuery,
    mask: Option<Mask>,
    scan: Scan,
    body: Body,
    has_begun: bool,
}

impl Listing {
    /// Creates the answer, before its first piece.
    pub fn new(asked: ValidQuery, mask: Option<Mask>) -> Listing {
        let (scan, body) = (Scan::new(&asked), Body::new(&asked));
        Listing { asked, mask, scan, body, has_begun: false }
    }

    /// Returns the next piece, which ends with the item that reaches `piece_bytes`, and whether it is the last.
    pub fn piece(
        &mut self,
        views: &[View],
        functions: &RefCell<Functions>,
        state: &dyn State,
        piece_bytes: usize,
    ) -> Result<(String, bool), Fault> {
        with_tree(&views[self.asked.view], functions, self.mask.as_ref(), |tree| {
            if !std::mem::replace(&mut self.has_begun, true) {
                let Head { total_rows, debug } = Head::of(&self.asked, tree, state)?;
                let debug = debug.map(|debug| (LOCAL, debug));
                self.body.begin(total_rows, debug.as_slice());
            }
            if !self.body.is_over() {
                let mut piece = Piece { body: &mut self.body, bytes: piece_bytes };
                let step = self.scan.read(tree, state, &mut piece)?;
                if step.is_break() && !self.body.is_over() {
                    return Ok((self.body.take_text(), false));
                }
            }
            self.body.end();
            Ok((self.body.take_text(), true))
        })
    }
}

/// A piece that is being written.
struct Piece<'a> {
    body: &'a mut Body,
    bytes: usize,
}

impl ItemConsumer for Piece<'_> {
    fn skip(&mut self) -> u64 {
        std::mem::take(&mut self.body.window.skip)
    }

    fn take(&mut self, _range: usize, item: Item<'_>) -> Step {
        match item {
            Item::Row(_, row) => self.body.row(&row),
            Item::Group(group) => self.body.group(group.key, || {
                result_json(group.reduction).map_err(|reason| vec![Failure::local(reason)])
            }),
        }
        self.body.step(self.bytes)
    }
}
