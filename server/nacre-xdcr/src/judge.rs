//! Decides which of two versions stays, or that a resolver must be asked.
//!
//! In a bucket with a resolver, histories decide first:
//!
//! | arriving version's history | result |
//! | --- | --- |
//! | is contained in the local one | the local version stays |
//! | contains the local one, and the CAS is greater | the arriving version is stored |
//! | contains the local one, and the CAS is not greater | it is stored under a CAS of this bucket, as a merge with one side only |
//! | equals the local one | the greater pair of CAS and source wins; the same pair changes nothing |
//! | conflicts, and both are deletions | the greater pair of CAS and source wins |
//! | conflicts | the resolver is asked, and every answer is recorded as a merge |
//!
//! Recording every answer makes three or more clusters converge. "Keep this one" is not transitive: a cluster that did
//! not see the decision would decide again, perhaps differently.
//!
//! A version without a history has unknown contents. The resolver is asked, unless both versions are the same or have
//! the same body. Without the second exception, two clusters that send no histories would merge each other's merges for
//! ever.
//!
//! Without a resolver, the rule of the bucket decides, whatever the histories say. If the rule finds a tie, the values
//! decide: two clusters that write a document within one tick of their clocks give it the same CAS.

use crate::{Known, Relation, SourceId};
use nacre_types::{Cas, Kind, Meta};
use nacre_vbucket::{Content, Resolution};

/// How a bucket resolves conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The rule of the bucket alone.
    Rule(Resolution),
    /// Histories, and a resolver in conflict. The rule decides between equal bodies without histories.
    Resolver(Resolution),
}

impl Policy {
    /// Returns the rule of the bucket.
    pub fn rule(self) -> Resolution {
        match self {
            Policy::Rule(rule) | Policy::Resolver(rule) => rule,
        }
    }
}

/// A version and the knowledge about it.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The metadata.
    pub meta: &'a Meta,
    /// Knowledge from the attributes.
    pub known: &'a Known,
    /// The attributes that were read.
    pub xattrs: &'a [u8],
    /// The body, if it was read.
    pub body: Option<&'a [u8]>,
}

impl<'a> Side<'a> {
    /// Returns the content that breaks ties of metadata. The body of a deletion does not matter.
    fn content(self) -> Content<'a> {
        let Side { meta, xattrs, .. } = self;
        Content { meta, xattrs, body: self.body.unwrap_or_default() }
    }

    /// Returns the rank that orders versions with equal histories.
    fn rank(self) -> (Cas, Option<&'a SourceId>) {
        (self.meta.cas, self.known.history.as_ref().map(|history| history.source()))
    }
}

/// The decision about a version that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The local version stays.
    Keep,
    /// The arriving version is stored as it is.
    Take,
    /// The arriving version is stored under a CAS of this bucket.
    TakeAnew,
    /// The resolver decides.
    Ask,
    /// The bodies decide, but at least one was not read.
    Compare,
}

/// Judges the arriving version against the local one.
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

/// Returns true if two versions, at least one of them without a history, are the same or have the same body.
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
    // Two clusters may have written the same content. The source breaks that tie.
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
