//! Decides which of two versions stays, or that a resolver must be asked.
//!
//! In a bucket with a resolver, histories decide first:
//!
//! | relation of the version that arrives | what happens |
//! | --- | --- |
//! | contained in the local one | the local one stays |
//! | contains the local one, and has the greater CAS | it is taken over |
//! | contains the local one, and has no greater CAS | it is taken over under a CAS of this bucket, as a merge of one side |
//! | equal | the greater pair of CAS and source stays; nothing happens for the same |
//! | in conflict, both deleted | the same |
//! | in conflict | the resolver is asked, and every answer is recorded as a merge |
//!
//! Recording every answer makes three and more clusters converge: "keep this one" is not transitive, and a cluster that
//! did not see the decision would decide again, perhaps the other way round.
//!
//! The content of a version without a history is unknown: the resolver is asked, unless it is the same version, or has
//! the same body. Without the second exception, two clusters that send no histories would merge their merges for ever.
//!
//! Without a resolver, the rule of the bucket decides, whatever the histories say. Versions that it does not tell apart are
//! compared by their values: two clusters that write a document within a tick of their clocks give it the same CAS.

use crate::{Known, Relation, SourceId};
use nacre_types::{Cas, Kind, Meta};
use nacre_vbucket::{Content, Resolution};

/// The rule of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The rule of the bucket.
    Rule(Resolution),
    /// Histories and, in conflict, a resolver. Between equal bodies without histories, the rule.
    Resolver(Resolution),
}

impl Policy {
    /// The rule of the bucket.
    pub fn rule(self) -> Resolution {
        match self {
            Policy::Rule(rule) | Policy::Resolver(rule) => rule,
        }
    }
}

/// A version, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The metadata.
    pub meta: &'a Meta,
    /// Knowledge from the attributes.
    pub known: &'a Known,
    /// The attributes, as far as they were read.
    pub xattrs: &'a [u8],
    /// The body, if it was read.
    pub body: Option<&'a [u8]>,
}

impl<'a> Side<'a> {
    /// What is compared when the metadata are the same. The body of a deletion does not matter.
    fn content(self) -> Content<'a> {
        let Side { meta, xattrs, .. } = self;
        Content { meta, xattrs, body: self.body.unwrap_or_default() }
    }

    /// Returns the order of versions with equal histories.
    fn rank(self) -> (Cas, Option<&'a SourceId>) {
        (self.meta.cas, self.known.history.as_ref().map(|history| history.source()))
    }
}

/// The decision about a version that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The version here stays.
    Keep,
    /// It is stored as it is.
    Take,
    /// It is stored under a CAS of this bucket.
    TakeAnew,
    /// The resolver decides.
    Ask,
    /// The bodies decide, of which one was not read.
    Compare,
}

/// Judges the version that arrives against the one that is here.
pub fn judge(policy: Policy, incoming: Side<'_>, local: Side<'_>) -> Judgement {
    let take_if = |takes| if takes { Judgement::Take } else { Judgement::Keep };
    let histories = (incoming.known.history.as_ref(), local.known.history.as_ref());
    match (policy, histories) {
        (Policy::Resolver(_), (Some(arriving), Some(here))) => match arriving.relation(here) {
            Relation::Contained => Judgement::Keep,
            Relation::Contains if incoming.meta.cas > local.meta.cas => Judgement::Take,
            Relation::Contains => Judgement::TakeAnew,
            Relation::Equal => take_if(incoming.rank() > local.rank()),
            Relation::Conflict if is_deleted(incoming.meta) && is_deleted(local.meta) => {
                take_if(incoming.rank() > local.rank())
            }
            Relation::Conflict => Judgement::Ask,
        },
        (Policy::Resolver(_), _) if !is_same(incoming, local) => Judgement::Ask,
        _ => by_rule(policy.rule(), incoming, local),
    }
}

/// Returns true if versions of which one has no history are the same, or have the same body.
fn is_same(incoming: Side<'_>, local: Side<'_>) -> bool {
    let version = |side: Side<'_>| (side.known.cas, side.known.rev, side.meta.kind);
    let has_body = incoming.body.is_some() && is_deleted(incoming.meta) == is_deleted(local.meta);
    version(incoming) == version(local) || (has_body && incoming.body == local.body)
}

fn by_rule(rule: Resolution, incoming: Side<'_>, local: Side<'_>) -> Judgement {
    let metas = [incoming, local].map(|side| side.known.compared(side.meta));
    if rule.takes(&metas[0], &metas[1]) {
        return Judgement::Take;
    }
    if rule.takes(&metas[1], &metas[0]) {
        return Judgement::Keep;
    }
    let has_deletion = is_deleted(incoming.meta) || is_deleted(local.meta);
    if !has_deletion && (incoming.body.is_none() || local.body.is_none()) {
        return Judgement::Compare;
    }
    let sources = [incoming, local].map(|it| it.known.history.as_ref().map(|it| it.source()));
    // Versions with the same content still differ if two clusters have written it: the source decides then.
    let is_later_source = matches!(sources, [Some(arriving), Some(here)] if arriving > here);
    let (arriving, here) = (incoming.content(), local.content());
    match arriving.outranks(here) || (is_later_source && !here.outranks(arriving)) {
        true => Judgement::Take,
        false => Judgement::Keep,
    }
}

fn is_deleted(meta: &Meta) -> bool {
    meta.kind != Kind::Alive
}
