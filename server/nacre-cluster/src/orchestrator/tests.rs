use super::rebalance::{HAND_OVERS_MAX, HOLD_NS_MAX, MOVES_MAX};
use super::*;
use crate::{
    AutoFailover, BucketChange, BucketSettings, Chain, Chosen, ClusterChange, Endpoints, Member,
    Outcome, Ports, Refusal, RetryRebalance, ServiceName, SettingsChange,
};

const SECOND: u64 = 1000 * MS;

fn cluster(nodes: u64, replicas: u8) -> Cluster {
    let mut cluster = Cluster::new("c".into());
    for id in 1..=nodes {
        let member = member(Membership::Active);
        cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id), member })).unwrap();
    }
    let settings = BucketSettings { vbucket_count: 12, replicas, ..BucketSettings::default() };
    let (name, uuid) = ("b".to_owned(), "u".to_owned());
    cluster.apply(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings })).unwrap();
    cluster
}

fn member(membership: Membership) -> Member {
    let plain = Ports::from([("mgmt", 1), ("views", 2), ("query", 3), ("eventing", 4), ("kv", 5)]);
    let endpoints = Endpoints { host: None, plain, tls: None, fingerprint: None };
    let services = ServiceName::FIRST.into();
    Member { uuid: "u".into(), endpoints, group: "g".into(), services, membership, alternate: None }
}

/// Returns the standing of an active copy with complete history up to there, whose node knows the agreed state.
fn stands(term: u64, seqno: u64) -> Standing {
    Standing {
        term,
        prepared: seqno,
        high_seqno: seqno,
        persisted: seqno,
        joint: None,
        rests: false,
        in_doubt_term: None,
        is_busy: false,
        is_known_held: true,
    }
}

/// The nodes as seen by the leader, node 1, until it makes a proposal.
struct World {
    cluster: Cluster,
    leader: Orchestrator,
    now: u64,
    down: Vec<NodeId>,
    /// Reports of copies by node.
    standings: BTreeMap<NodeId, Standing>,
    /// Nodes without copies, with the revision that each has applied.
    bare: BTreeMap<NodeId, u64>,
    /// True if the outcome of proposals stays unknown.
    is_unsettled: bool,
    /// Age of the last confirmation that node 1 leads.
    unconfirmed_ns: u64,
}

impl World {
    fn new(cluster: Cluster) -> World {
        let leader = Orchestrator::new(NodeId(1), 5);
        let (down, standings, bare) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        World {
            cluster,
            leader,
            now: SECOND,
            down,
            standings,
            bare,
            is_unsettled: false,
            unconfirmed_ns: 0,
        }
    }

    /// Creates a rebalance without progress: the nodes in `added` are new, and those in `keep` have a share afterwards.
    fn rebalancing(mut cluster: Cluster, added: &[u64], keep: &[u64]) -> World {
        for id in added {
            let member = member(Membership::Added);
            cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(*id), member })).unwrap();
        }
        let keep = keep.iter().map(|id| NodeId(*id)).collect();
        let rest = Membership::Leaving;
        cluster
            .apply(&Change::Nodes(NodeChange::StartRebalance {
                id: "r".into(),
                keep,
                rest,
                services: BTreeMap::new(),
            }))
            .unwrap();
        World::new(cluster)
    }

    fn standing(&self, node: NodeId, chain: &Chain) -> Standing {
        let rests = chain.held && chain.active() == Some(node);
        let good = Standing { rests, is_known_held: chain.held, ..stands(chain.term, 9) };
        let mut standing = self.standings.get(&node).cloned().unwrap_or(good);
        if chain.active() == Some(node) && !chain.next.is_empty() && standing.joint.is_none() {
            standing.joint = Some(Joint { next: chain.next.clone(), from: 8, stored: 0 });
        }
        standing
    }

    /// Runs one tick and answers its messages. Returns its proposals.
    fn tick(&mut self) -> Vec<Change> {
        self.now += TICK_NS;
        if !self.is_unsettled {
            self.leader.settled();
        }
        let nodes: Vec<NodeId> = self.cluster.nodes.keys().copied().collect();
        for node in nodes.into_iter().filter(|node| !self.down.contains(node)) {
            let ask = Message::Ask {
                at: self.now,
                start: 1,
                in_doubt: BTreeMap::new(),
                ignored_map_rev: 0,
            };
            self.leader.receive(node, ask, &self.cluster, self.leads(), self.now);
        }
        let mut proposed = Vec::new();
        for effect in self.leader.tick(&self.cluster, self.leads(), self.now) {
            match effect {
                Effect::Propose(change) => proposed.push(change),
                Effect::Send(node, Message::Poll { number, wanted, fence })
                    if !self.down.contains(&node) =>
                {
                    assert_eq!(fence, self.leader.fence, "it does not answer to an earlier word");
                    let report = self.report(node, number, wanted);
                    self.leader.receive(node, report, &self.cluster, self.leads(), self.now);
                }
                Effect::Send(..) => {}
            }
        }
        proposed
    }

    /// Runs one tick and applies its proposals.
    fn step(&mut self) {
        for change in self.tick() {
            self.cluster.apply(&change).unwrap();
        }
    }

    fn leads(&self) -> Option<Leadership> {
        Some(Leadership { term: 1, confirmed_ns: self.now - self.unconfirmed_ns })
    }

    fn report(&self, node: NodeId, number: u64, wanted: BTreeMap<String, Vec<u16>>) -> Message {
        if let Some(rev) = self.bare.get(&node) {
            return Message::Report { number, rev: *rev, standings: BTreeMap::new() };
        }
        let standings = wanted.into_iter().map(|(name, vbids)| {
            let chains = &self.cluster.buckets[&name].chains;
            let of = |vbid: u16| (vbid, self.standing(node, &chains[usize::from(vbid)]));
            (name, vbids.into_iter().map(of).collect())
        });
        Message::Report { number, rev: self.cluster.rev, standings: standings.collect() }
    }

    /// Ticks until a change is proposed, for at most this many seconds.
    fn until_proposed(&mut self, seconds: u64) -> Option<Change> {
        let end = self.now + seconds * SECOND;
        while self.now < end {
            if let Some(change) = self.tick().into_iter().next() {
                return Some(change);
            }
        }
        None
    }
}

#[test]
fn a_node_that_falls_silent_is_replaced_by_the_best_of_its_replicas() {
    let mut world = World::new(cluster(3, 2));
    assert_eq!(world.until_proposed(10), None, "all are well");
    world.down = vec![NodeId(3)];
    let better = stands(1, 12);
    world.standings.insert(NodeId(2), better);
    let silent_since = world.now;
    let change = world.until_proposed(20).unwrap();
    assert!(world.now - silent_since > 5 * SECOND, "not before its time is over");
    assert!(world.now - silent_since < 6 * SECOND);
    world.cluster.apply(&change).unwrap();
    for chain in &world.cluster.buckets["b"].chains {
        assert!(!chain.involves(NodeId(3)));
        assert_eq!(chain.copies.iter().flatten().count(), 2);
    }
    let of_3 = cluster(3, 2).buckets["b"].chains.clone();
    for (before, after) in of_3.iter().zip(&world.cluster.buckets["b"].chains) {
        if before.active() == Some(NodeId(3)) {
            assert_eq!((after.active(), after.term), (Some(NodeId(2)), 2));
            assert_eq!(after.chosen, Some(Chosen { term: 1, high_seqno: 12 }));
        } else {
            assert_eq!(after.chosen, None, "it goes on");
            assert_eq!((after.active(), after.term), (before.active(), 2), "a copy is gone");
        }
    }
    assert_eq!(world.cluster.nodes[&NodeId(3)].membership, Membership::FailedOver);
    assert_eq!(world.until_proposed(20), None, "once");
    assert_eq!(world.cluster.auto_failover.count, 1);
}

#[test]
fn a_replica_of_the_latest_term_with_all_prepares_is_preferred() {
    let less = [stands(0, 99), Standing { prepared: 3, ..stands(1, 99) }];
    for less in less {
        let mut world = World::new(cluster(3, 2));
        world.down = vec![NodeId(3)];
        let better = Standing { prepared: 4, ..stands(1, 12) };
        world.standings = [(NodeId(1), less), (NodeId(2), better)].into();
        let before = world.cluster.buckets["b"].chains.clone();
        let change = world.until_proposed(20).unwrap();
        world.cluster.apply(&change).unwrap();
        let after = &world.cluster.buckets["b"].chains;
        let replaced =
            before.iter().zip(after).filter(|(chain, _)| chain.active() == Some(NodeId(3)));
        assert!(replaced.clone().count() > 0);
        assert!(replaced.clone().all(|(_, chain)| chain.active() == Some(NodeId(2))), "{after:?}");
    }
}

#[test]
fn a_node_about_to_be_replaced_is_not_followed_before_the_outcome_is_known() {
    let mut world = World::new(cluster(3, 2));
    world.tick();
    let lost = NodeId(3);
    let ask = |world: &mut World, from| {
        let ask =
            Message::Ask { at: world.now, start: 1, in_doubt: BTreeMap::new(), ignored_map_rev: 0 };
        let leads = world.leads();
        world.leader.receive(from, ask, &world.cluster, leads, world.now)
    };
    let fence = |granted| match granted {
        Some(Message::Grant { fence, .. }) => fence,
        other => panic!("{other:?}"),
    };
    let before = fence(ask(&mut world, NodeId(2)));
    assert!(before.lost.is_empty());
    world.down = vec![lost];
    let change = world.until_proposed(20).unwrap();
    world.is_unsettled = true;
    // The node has returned, but the change may still be decided.
    world.down.clear();
    for _ in 0..3 {
        assert_eq!(ask(&mut world, lost), None, "it must not serve again");
        let now = fence(ask(&mut world, NodeId(2)));
        assert_eq!(now.lost, [lost].into());
        assert!(now.epoch > before.epoch);
        let again = world.tick();
        assert!(again.iter().all(|other| *other == change), "{again:?}");
    }
    // Refused or accepted.
    world.is_unsettled = false;
    for made in [false, true] {
        if made {
            world.cluster.apply(&change).unwrap();
        }
        assert_eq!(world.tick(), []);
        let after = fence(ask(&mut world, NodeId(2)));
        assert!(after.lost.is_empty() && after.epoch > before.epoch);
    }
}

/// A write acknowledged by two of three copies may exist on no other copy.
#[test]
fn a_second_silent_node_waits_until_the_failover_of_the_first_is_decided() {
    for made in [false, true] {
        let mut world = World::new(cluster(3, 2));
        world.cluster.auto_failover.count_max = 2;
        world.down = vec![NodeId(3)];
        let change = world.until_proposed(20).unwrap();
        world.is_unsettled = true;
        world.down = vec![NodeId(2)];
        let mut proposed = Vec::new();
        while proposed.last() != Some(&Change::Nodes(NodeChange::RenewMap)) {
            assert!(proposed.iter().all(|other| *other == change), "{proposed:?}");
            proposed.extend(world.tick());
        }
        assert_eq!(world.tick(), [Change::Nodes(NodeChange::RenewMap)], "until it is decided");
        world.is_unsettled = false;
        if made {
            world.cluster.apply(&change).unwrap();
        }
        let Some(Change::Nodes(NodeChange::MoveCopies { memberships, .. })) =
            world.until_proposed(20)
        else {
            panic!("nothing is proposed")
        };
        assert_eq!(memberships, [(NodeId(2), Membership::FailedOver)].into());
    }
}

#[test]
fn no_node_is_replaced_before_all_others_have_reported_and_leases_have_ended() {
    let mut world = World::new(cluster(4, 1));
    world.cluster.auto_failover.timeout_ms = 100;
    world.tick();
    world.down = vec![NodeId(4)];
    let silent_since = world.now;
    world.until_proposed(20).unwrap();
    assert!(world.now - silent_since > LEASE_NS, "its lease");
    let mut world = World::new(cluster(4, 1));
    world.cluster.auto_failover.timeout_ms = 100;
    (world.down, world.unconfirmed_ns) = (vec![NodeId(4)], 500 * MS);
    let led_since = world.now + TICK_NS - world.unconfirmed_ns;
    world.until_proposed(20).unwrap();
    let waited = world.now - led_since;
    assert!(waited > LEASE_NS, "a lease of the leader before");
    assert!(waited < LEASE_NS + LEASE_NS / 5 + 2 * TICK_NS, "from when another one led for sure");
    let mut world = World::new(cluster(4, 1));
    world.cluster.auto_failover = AutoFailover { count_max: 1, ..Default::default() };
    world.cluster.apply(&Change::Nodes(NodeChange::FailOver { nodes: vec![NodeId(4)] })).unwrap();
    world.down = vec![NodeId(3), NodeId(4)];
    assert_eq!(world.until_proposed(4), None, "one answer is missing");
    world.down = vec![NodeId(4)];
    assert!(world.until_proposed(4).is_some());
}

#[test]
fn a_lease_counts_from_the_last_confirmed_leadership() {
    let cluster = cluster(3, 1);
    let mut leader = Orchestrator::new(NodeId(1), 5);
    let confirmed = |term, confirmed_ns| Some(Leadership { term, confirmed_ns });
    let mut ask = |leads, now| {
        let ask = Message::Ask { at: 7, start: 3, in_doubt: BTreeMap::new(), ignored_map_rev: 0 };
        leader.tick(&cluster, confirmed(1, SECOND), SECOND);
        leader.receive(NodeId(2), ask, &cluster, leads, now)
    };
    let granted = |for_ns| {
        let rev = cluster.rev;
        let epoch = FenceEpoch { regroups: 0, term: 1, start: 5, at: SECOND };
        let fence = Fence { epoch, rev, lost: BTreeSet::new() };
        Some(Message::Grant { at: 7, start: 3, for_ns, rev, fence })
    };
    assert_eq!(ask(confirmed(1, SECOND), SECOND), granted(LEASE_NS));
    assert_eq!(ask(confirmed(1, SECOND), 2 * SECOND), granted(LEASE_NS - SECOND));
    assert_eq!(ask(confirmed(1, SECOND), 2 * SECOND + 1), None, "others may lead by now");
    assert_eq!(ask(confirmed(3, SECOND), SECOND), None, "others have led since the last tick");
    assert_eq!(ask(None, SECOND), None);
}

#[test]
fn a_copy_that_does_not_serve_is_replaced_once_it_certainly_will_not() {
    let decides = |change: &dyn Fn(&mut World)| {
        let mut world = World::new(cluster(3, 2));
        world.tick();
        world.down = vec![NodeId(3)];
        change(&mut world);
        world.until_proposed(20).is_some()
    };
    let rests = |in_doubt_term| Standing { rests: true, in_doubt_term, ..stands(1, 9) };
    for (in_doubt_term, is_settled) in [(None, false), (Some(0), false), (Some(1), true)] {
        let change = |world: &mut World| {
            world.standings.insert(NodeId(2), rests(in_doubt_term));
        };
        assert_eq!(decides(&change), is_settled, "{in_doubt_term:?}");
    }
    // The node has no copies: it may not know the bucket yet.
    for (behind, is_settled) in [(1, false), (0, true)] {
        let change = |world: &mut World| {
            world.bare.insert(NodeId(2), world.cluster.rev - behind);
        };
        assert_eq!(decides(&change), is_settled, "{behind} behind");
    }
}

#[test]
fn a_node_is_not_failed_over_automatically_where_no_copy_has_all_of_its_data() {
    let mut world = World::new(cluster(3, 2));
    world.tick();
    world.down = vec![NodeId(3)];
    let behind = || stands(0, 9);
    world.standings = BTreeMap::from([(NodeId(1), behind()), (NodeId(2), behind())]);
    assert_eq!(world.until_proposed(20), None);
    world.standings.remove(&NodeId(2));
    assert!(world.until_proposed(20).is_some(), "one has caught up");
    world.standings.insert(NodeId(2), behind());
    world.cluster.apply(&Change::Nodes(NodeChange::FailOver { nodes: vec![NodeId(3)] })).unwrap();
    assert!(world.until_proposed(20).is_some(), "the operator wants it all the same");
}

#[test]
fn no_two_copies_are_given_up_at_once_where_the_third_may_lack_what_they_have_acknowledged() {
    let mut world = World::new(cluster(3, 2));
    world.tick();
    world.cluster.apply(&Change::Nodes(NodeChange::FailOver { nodes: vec![NodeId(3)] })).unwrap();
    world.down = vec![NodeId(2), NodeId(3)];
    assert_eq!(world.until_proposed(20), None, "of one that was ordered and one that is silent");
    let refused =
        world.cluster.apply(&Change::Nodes(NodeChange::FailOver { nodes: vec![NodeId(2)] }));
    assert_eq!(refused, Err(Refusal::FailoverRuns { id: NodeId(3) }));
    let both = vec![NodeId(2), NodeId(3)];
    world.cluster.apply(&Change::Nodes(NodeChange::FailOver { nodes: both })).unwrap();
    assert!(world.until_proposed(20).is_some(), "the operator wants it all the same");

    let mut world = World::new(cluster(5, 2));
    world.cluster.auto_failover.count_max = 2;
    world.tick();
    let pair = [4, 5].map(NodeId);
    let chains = &world.cluster.buckets["b"].chains;
    let is_second = |node: &Option<NodeId>| node.is_some_and(|node| pair.contains(&node));
    let both = |chain: &Chain| chain.copies.iter().filter(|node| is_second(node)).count() == 2;
    assert!(chains.iter().any(|chain| both(chain) && is_second(&chain.active())));
    world.down = pair.into();
    assert_eq!(world.until_proposed(20), None, "of two that are silent");
    world.down = vec![NodeId(5)];
    assert!(world.until_proposed(20).is_some());
}

#[test]
fn each_remaining_copy_is_confirmed_again_once_another_copy_is_lost() {
    let mut world = World::new(cluster(3, 2));
    world.cluster.auto_failover.count_max = 2;
    world.tick();
    world.down = vec![NodeId(3)];
    let change = world.until_proposed(20).unwrap();
    world.cluster.apply(&change).unwrap();
    world.cluster.apply(&Change::Nodes(NodeChange::ResetAutoFailover)).unwrap();
    // Writes acknowledged by node 3 have not reached node 1 yet.
    let behind = stands(1, 7);
    world.standings.insert(NodeId(1), behind);
    world.down = vec![NodeId(2)];
    assert_eq!(world.until_proposed(20), None);
}

#[test]
fn a_map_is_renewed_only_for_reports_received_as_leader_and_seldom() {
    let cluster = cluster(3, 1);
    let mut leader = Orchestrator::new(NodeId(1), 5);
    let leads = |now| Some(Leadership { term: 1, confirmed_ns: now });
    let ignored_map_rev = |leader: &mut Orchestrator, now, rev| {
        for node in [NodeId(2), NodeId(3)] {
            let (start, in_doubt) = (1, BTreeMap::new());
            let ask = Message::Ask { at: now, start, in_doubt, ignored_map_rev: rev };
            leader.receive(node, ask, &cluster, leads(now), now);
        }
        leader.tick(&cluster, leads(now), now)
    };
    let renewed = [Effect::Propose(Change::Nodes(NodeChange::RenewMap))];
    assert_eq!(
        ignored_map_rev(&mut leader, SECOND, cluster.rev),
        [],
        "it did not lead when it heard that"
    );
    assert_eq!(
        ignored_map_rev(&mut leader, 2 * SECOND, cluster.rev - 1),
        [],
        "there is a newer one"
    );
    assert_eq!(ignored_map_rev(&mut leader, 3 * SECOND, cluster.rev), renewed);
    assert_eq!(ignored_map_rev(&mut leader, 12 * SECOND, cluster.rev), []);
    assert_eq!(ignored_map_rev(&mut leader, 13 * SECOND, cluster.rev), renewed);
}

#[test]
fn a_node_without_a_copy_is_not_waited_for() {
    // Node 5 was failed over before and is still lost, and so is node 6, which has no share yet.
    let mut world = World::new(cluster(5, 2));
    world.cluster.auto_failover.count_max = 2;
    world.tick();
    world.down = vec![NodeId(5)];
    let change = world.until_proposed(40).unwrap();
    world.cluster.apply(&change).unwrap();
    let newcomer =
        Change::Nodes(NodeChange::PutNode { id: NodeId(6), member: member(Membership::Added) });
    world.cluster.apply(&newcomer).unwrap();
    let seventh =
        Change::Nodes(NodeChange::PutNode { id: NodeId(7), member: member(Membership::Added) });
    world.cluster.apply(&seventh).unwrap();
    world.down = [4, 5, 6].map(NodeId).into();
    let change = world.until_proposed(40).expect("a change");
    world.cluster.apply(&change).unwrap();
    assert_eq!(world.cluster.nodes[&NodeId(4)].membership, Membership::FailedOver);
    // The same holds when copies move: the reports have to be new.
    let keep = [1, 2, 3, 7].map(NodeId).into();
    let (id, rest) = ("r".to_owned(), Membership::Leaving);
    world
        .cluster
        .apply(&Change::Nodes(NodeChange::StartRebalance {
            id,
            keep,
            rest,
            services: BTreeMap::new(),
        }))
        .unwrap();
    world.standings.insert(NodeId(7), stands(0, 0));
    for _ in 0..20 {
        world.step();
    }
    world.standings.clear();
    for _ in 0..400 {
        world.step();
    }
    assert_eq!(world.cluster.rebalance, None);
    assert_eq!(world.cluster.last_rebalance.unwrap().outcome, Outcome::Completed);
}

#[test]
fn too_many_nodes_or_the_last_copy_are_not_replaced_automatically() {
    let silent = |cluster: Cluster, down: &[u64]| {
        let mut world = World::new(cluster);
        world.tick();
        world.down = down.iter().map(|id| NodeId(*id)).collect();
        world.until_proposed(20)
    };
    assert_eq!(silent(cluster(5, 2), &[4, 5]), None, "one at a time");
    assert_eq!(silent(cluster(2, 1), &[2]), None, "no majority is left");
    assert_eq!(silent(cluster(3, 0), &[3]), None, "there is no other copy");
    let mut off = cluster(3, 1);
    off.auto_failover.enabled = false;
    assert_eq!(silent(off, &[3]), None);
    assert!(silent(cluster(3, 1), &[3]).is_some());
}

#[test]
fn a_rebalance_leaves_time_for_requests() {
    let mut cluster = Cluster::new("c".into());
    for id in 1..=2 {
        let member = member(Membership::Active);
        cluster.apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id), member })).unwrap();
    }
    let settings = BucketSettings { vbucket_count: 1024, ..BucketSettings::default() };
    let (name, uuid) = ("b".to_owned(), "u".to_owned());
    cluster.apply(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings })).unwrap();
    let mut world = World::new(cluster);
    world.tick();
    let keep = [NodeId(1)].into();
    let rebalance = Change::Nodes(NodeChange::StartRebalance {
        id: "r".into(),
        keep,
        rest: Membership::Leaving,
        services: BTreeMap::new(),
    });
    world.cluster.apply(&rebalance).unwrap();
    assert_eq!(world.tick(), [], "clients hear of it first");
    let chains = |world: &World| world.cluster.buckets["b"].chains.clone();
    let at_rest = Standing { rests: true, is_busy: true, ..stands(100, 9) };
    for tick in 0.. {
        if world.cluster.rebalance.is_none() {
            break;
        }
        // At first durable writes are still in progress.
        let busy = (tick < 5).then(|| (NodeId(2), at_rest.clone()));
        world.standings = busy.into_iter().collect();
        let before = chains(&world);
        world.step();
        let after = chains(&world);
        let begun = before.iter().zip(&after);
        let begun =
            begun.filter(|(before, after)| before.next.is_empty() && !after.next.is_empty());
        assert!(begun.count() <= MOVES_MAX);
        assert!(after.iter().filter(|chain| chain.held).count() <= HAND_OVERS_MAX);
    }
}

#[test]
fn a_copy_takes_over_once_it_has_persisted_what_its_predecessor_had() {
    let mut world = World::rebalancing(cluster(1, 0), &[2], &[2]);
    let next = vec![Some(NodeId(2))];
    let joint = Some(Joint { next, from: 2, stored: 7 });
    let from = Standing { joint, rests: true, ..stands(1, 9) };
    let is_held = |chain: &Chain| chain.held && chain.active() == Some(NodeId(1));
    for (persisted, expected) in [(6, true), (7, false)] {
        let next = Standing { persisted, ..stands(1, 9) };
        world.standings = [(NodeId(1), from.clone()), (NodeId(2), next)].into();
        (0..8).for_each(|_| world.step());
        let chains = &world.cluster.buckets["b"].chains;
        assert_eq!(chains.iter().all(is_held), expected, "{chains:?}");
    }
}

#[test]
fn a_node_moves_no_more_vbuckets_at_once_than_the_operator_allows() {
    let mut world = World::rebalancing(cluster(2, 1), &[3], &[1, 2, 3]);
    let change = Box::new(SettingsChange::MovesPerNode(1));
    world.cluster.apply(&Change::Cluster(ClusterChange::ChangeSettings { change })).unwrap();
    let mut busiest = 0;
    for _ in 0..400 {
        for change in world.tick() {
            world.cluster.apply(&change).unwrap();
            let chains = &world.cluster.buckets["b"].chains;
            let moving = chains.iter().filter(|chain| !chain.next.is_empty());
            let received = moving.filter(|chain| {
                chain.next.contains(&Some(NodeId(3))) && !chain.copies.contains(&Some(NodeId(3)))
            });
            busiest = busiest.max(received.count());
        }
    }
    assert_eq!(busiest, 1, "node 3 receives one after the other");
    assert_eq!(world.cluster.rebalance, None, "it has come to its end");
    assert_eq!(world.cluster.serving_nodes().len(), 3);
}

#[test]
fn a_rebalance_moves_copies_step_by_step_until_they_are_even() {
    let mut world = World::rebalancing(cluster(2, 1), &[3, 4], &[1, 3, 4]);
    let mut held = 0;
    for _ in 0..200 {
        for change in world.tick() {
            let before = world.cluster.buckets["b"].chains.clone();
            world.cluster.apply(&change).unwrap();
            for (before, after) in before.iter().zip(&world.cluster.buckets["b"].chains) {
                held += usize::from(after.held && !before.held);
                if after.held {
                    assert_eq!(world.leader.pause_ns(), HURRY_NS, "writers wait");
                }
                if before.active() != after.active() {
                    assert!(before.held, "nobody may write while the active copy changes");
                    assert_eq!(after.term, before.term + 1);
                }
            }
        }
    }
    assert!(held > 0);
    assert_eq!(world.cluster.rebalance, None, "it has come to its end");
    assert_eq!(world.leader.pause_ns(), TICK_NS, "nobody waits");
    assert_eq!(world.cluster.nodes[&NodeId(2)].membership, Membership::Leaving);
    assert_eq!(world.cluster.serving_nodes().len(), 3);
    for chain in &world.cluster.buckets["b"].chains {
        assert!(chain.next.is_empty() && !chain.held && !chain.involves(NodeId(2)));
        assert_eq!(chain.copies.iter().flatten().count(), 2);
    }
}

#[test]
fn a_rebalance_moves_buckets_of_a_higher_rank_first() {
    let mut cluster = cluster(1, 0);
    for (name, rank) in [("a", 0), ("z", 7)] {
        let settings =
            BucketSettings { vbucket_count: 12, replicas: 0, rank, ..BucketSettings::default() };
        let (name, uuid) = (name.to_owned(), name.to_owned());
        let change = BucketChange::CreateBucket { name, uuid, settings };
        cluster.apply(&Change::Buckets(change)).unwrap();
    }
    let mut world = World::rebalancing(cluster, &[2], &[2]);
    let has_moved = |world: &World, name: &str| {
        let mut chains = world.cluster.buckets[name].chains.iter();
        chains.any(|chain| !chain.next.is_empty() || chain.involves(NodeId(2)))
    };
    let mut order = Vec::new();
    for _ in 0..400 {
        world.step();
        let begun = ["a", "b", "z"].into_iter().filter(|name| has_moved(&world, name));
        let begun: Vec<_> = begun.filter(|name| !order.contains(name)).collect();
        order.extend(begun);
    }
    assert_eq!(world.cluster.rebalance, None, "it has come to its end");
    assert_eq!(order, ["z", "a", "b"]);
}

#[test]
fn a_rebalance_ends_when_a_node_that_it_needs_is_lost() {
    let mut world = World::rebalancing(cluster(3, 1), &[4], &[1, 2, 4]);
    world.down = vec![NodeId(4)];
    for _ in 0..200 {
        world.step();
    }
    assert_eq!(world.cluster.rebalance, None);
    let ended = world.cluster.last_rebalance.as_ref().unwrap();
    assert_eq!(ended.outcome, Outcome::Failed { lost: [NodeId(4)].into() });
    assert_eq!(world.cluster.nodes[&NodeId(4)].membership, Membership::FailedOver);
    for chain in &world.cluster.buckets["b"].chains {
        assert!(chain.next.is_empty() && !chain.held && !chain.involves(NodeId(4)));
        assert_eq!(chain.copies.iter().flatten().count(), 2, "what was there stays");
    }
}

#[test]
fn an_unserved_vbucket_is_served_again_by_its_last_node_and_moves_from_there() {
    let mut world = World::new(cluster(2, 0));
    world.cluster.apply(&Change::Nodes(NodeChange::FailOver { nodes: vec![NodeId(2)] })).unwrap();
    world.down = vec![NodeId(2)];
    for _ in 0..100 {
        world.step();
    }
    let chains = |world: &World| world.cluster.buckets["b"].chains.clone();
    let is_gone = |chain: &Chain| chain.active().is_none();
    let gone: Vec<u16> = (0..)
        .zip(chains(&world))
        .filter(|(_, chain)| is_gone(chain))
        .map(|(vbid, _)| vbid)
        .collect();
    assert_eq!(gone.len(), 6);
    // The node returns next to two others, and its share is smaller than before.
    world.down.clear();
    world
        .cluster
        .apply(&Change::Nodes(NodeChange::Recover { id: NodeId(2), full: false }))
        .unwrap();
    for id in [3, 4] {
        let member = member(Membership::Added);
        world
            .cluster
            .apply(&Change::Nodes(NodeChange::PutNode { id: NodeId(id), member }))
            .unwrap();
    }
    let (id, keep, rest) = ("r".into(), [1, 2, 3, 4].map(NodeId).into(), Membership::Leaving);
    let services = BTreeMap::new();
    world
        .cluster
        .apply(&Change::Nodes(NodeChange::StartRebalance { id, keep, rest, services }))
        .unwrap();
    let mut first: BTreeMap<u16, NodeId> = BTreeMap::new();
    while world.cluster.rebalance.is_some() {
        world.step();
        for vbid in &gone {
            if let Some(active) = chains(&world)[usize::from(*vbid)].active() {
                first.entry(*vbid).or_insert(active);
            }
        }
    }
    assert_eq!(first, gone.iter().map(|vbid| (*vbid, NodeId(2))).collect());
    let of_2 = chains(&world).iter().filter(|chain| chain.active() == Some(NodeId(2))).count();
    assert_eq!(of_2, 3, "then it has its share");
    assert!(chains(&world).iter().all(|chain| chain.last.is_none()));
}

#[test]
fn a_node_that_comes_during_a_rebalance_stays_for_the_next_one() {
    let mut world = World::rebalancing(cluster(2, 1), &[3], &[1, 3]);
    world.step();
    let newcomer =
        Change::Nodes(NodeChange::PutNode { id: NodeId(4), member: member(Membership::Added) });
    world.cluster.apply(&newcomer).unwrap();
    let recovered = Change::Nodes(NodeChange::Recover { id: NodeId(2), full: false });
    assert_eq!(world.cluster.apply(&recovered), Err(Refusal::RebalanceRuns));
    while world.cluster.rebalance.is_some() {
        world.step();
    }
    let part = |id| world.cluster.nodes[&NodeId(id)].membership;
    let expected = [Membership::Active, Membership::Leaving, Membership::Active, Membership::Added];
    assert_eq!([1, 2, 3, 4].map(part), expected);
}

#[test]
fn a_failed_rebalance_is_retried_with_the_remaining_nodes_up_to_the_limit() {
    let mut world = World::rebalancing(cluster(4, 1), &[5], &[1, 2, 4, 5]);
    world.cluster.auto_failover.count_max = 3;
    let settings = RetryRebalance { enabled: true, after_s: 20, retries_max: 1 };
    world.cluster.apply(&Change::Nodes(NodeChange::SetRetryRebalance { settings })).unwrap();
    world.down = vec![NodeId(5)];
    while world.cluster.rebalance.is_some() {
        world.step();
    }
    let failed_at = world.now;
    assert_eq!(world.cluster.pending_rebalance().map(|pending| &*pending.id), Some("r"));
    while world.cluster.rebalance.is_none() {
        world.step();
    }
    assert_eq!(world.now - failed_at, 20 * SECOND + TICK_NS);
    let again = world.cluster.rebalance.clone().unwrap();
    assert_eq!((again.keep, again.retries), ([1, 2, 4].map(NodeId).into(), 1));
    assert_eq!(again.leaving, [NodeId(3)].into(), "whom the operator took out, not who was lost");
    // The rebalance fails again, for the last time.
    world.down.push(NodeId(4));
    for _ in 0..600 {
        world.step();
    }
    let ended = world.cluster.last_rebalance.clone().unwrap();
    assert_eq!(ended.outcome, Outcome::Failed { lost: [NodeId(4)].into() });
    assert_eq!((world.cluster.rebalance.as_ref(), world.cluster.pending_rebalance()), (None, None));
    let id = || "r".to_owned();
    let refused = Err(Refusal::NoRebalance);
    assert_eq!(world.cluster.apply(&Change::Nodes(NodeChange::BeginAgain { id: id() })), refused);
    // The operator starts another one and stops it: nothing is pending then.
    let (keep, rest) = ([1, 2].map(NodeId).into(), Membership::Leaving);
    world
        .cluster
        .apply(&Change::Nodes(NodeChange::StartRebalance {
            id: "s".into(),
            keep,
            rest,
            services: BTreeMap::new(),
        }))
        .unwrap();
    world.cluster.apply(&Change::Nodes(NodeChange::StopRebalance)).unwrap();
    assert_eq!(world.cluster.last_rebalance.unwrap().outcome, Outcome::Stopped);
}

#[test]
fn a_pending_rebalance_can_be_cancelled() {
    let mut world = World::rebalancing(cluster(3, 1), &[4], &[1, 2, 4]);
    let settings = RetryRebalance { enabled: true, after_s: 20, retries_max: 3 };
    world.cluster.apply(&Change::Nodes(NodeChange::SetRetryRebalance { settings })).unwrap();
    world.down = vec![NodeId(4)];
    while world.cluster.rebalance.is_some() {
        world.step();
    }
    let give_up = |id: &str| Change::Nodes(NodeChange::GiveUpRebalance { id: id.to_owned() });
    assert_eq!(world.cluster.apply(&give_up("other")), Err(Refusal::NoRebalance));
    world.cluster.apply(&give_up("r")).unwrap();
    assert_eq!(world.cluster.apply(&give_up("r")), Err(Refusal::NoRebalance));
    for _ in 0..300 {
        world.step();
    }
    assert_eq!(world.cluster.rebalance, None);
}

#[test]
fn a_rebalance_leaves_the_data_to_nodes_that_are_there() {
    let mut cluster = cluster(3, 1);
    let failed_over = BTreeMap::from([(NodeId(3), Membership::FailedOver)]);
    let chains = BTreeMap::new();
    cluster
        .apply(&Change::Nodes(NodeChange::MoveCopies { memberships: failed_over, chains }))
        .unwrap();
    let mut start = |keep: &[u64]| {
        let keep = keep.iter().map(|id| NodeId(*id)).collect();
        let rest = Membership::Leaving;
        cluster.apply(&Change::Nodes(NodeChange::StartRebalance {
            id: "r".into(),
            keep,
            rest,
            services: BTreeMap::new(),
        }))
    };
    assert_eq!(start(&[]), Err(Refusal::NobodyKeeps));
    assert_eq!(start(&[1, 3]), Err(Refusal::NobodyKeeps));
    assert_eq!(start(&[1]).map(drop), Ok(()));
}

#[test]
fn a_copy_that_lags_behind_takes_nothing_over() {
    let mut world = World::rebalancing(cluster(1, 0), &[2], &[2]);
    let behind = stands(100, 8);
    world.standings.insert(NodeId(2), behind);
    let is_held = |world: &World| world.cluster.buckets["b"].chains.iter().all(|c| c.held);
    let (mut held, mut longest, mut ticks) = (0, 0, 0);
    for _ in 0..300 {
        world.step();
        ticks = if is_held(&world) { ticks + 1 } else { 0 };
        (held, longest) = (held + u64::from(ticks > 0), longest.max(ticks));
    }
    let chains = &world.cluster.buckets["b"].chains;
    assert!(chains.iter().all(|chain| chain.active() == Some(NodeId(1)) && chain.term > 2));
    assert!((1..=HOLD_NS_MAX / TICK_NS + 1).contains(&longest), "writers wait for {longest}");
    assert!(held * TICK_NS * 2 < 300 * TICK_NS, "and seldom: {held} ticks of 300");
    while !is_held(&world) {
        world.step();
    }
    let term = world.cluster.buckets["b"].chains[0].term;
    world.cluster.apply(&Change::Nodes(NodeChange::StopRebalance)).unwrap();
    let chains = &world.cluster.buckets["b"].chains;
    assert!(chains.iter().all(|chain| !chain.held && chain.term == term + 1));
}

#[test]
fn a_vbucket_is_not_handed_over_while_durable_writes_end_or_where_that_is_not_known() {
    let mut world = World::rebalancing(cluster(1, 0), &[2], &[2]);
    let tick = |world: &mut World| {
        world.step();
        world.cluster.buckets["b"].chains[0].clone()
    };
    while !tick(&mut world).held {}
    let good = Standing { rests: true, ..stands(100, 9) };
    let busy = Standing { is_busy: true, ..good.clone() };
    let unknowing = Standing { rests: false, is_known_held: false, ..good };
    for (node, standing) in [(NodeId(1), busy), (NodeId(2), unknowing)] {
        world.standings.insert(node, standing);
        for _ in 0..4 {
            assert!(tick(&mut world).held);
        }
        world.standings.clear();
    }
    let [_, after] = [tick(&mut world), tick(&mut world)];
    assert_eq!(after.active(), Some(NodeId(2)));
    assert_eq!(after.chosen, Some(Chosen { term: 1, high_seqno: 9 }));
}

#[test]
fn no_copy_is_dropped_before_others_have_persisted_its_acknowledged_writes() {
    // Either the active copy or the replica is dropped: 3 replaces 1 or 2.
    for keep in [[2, 3], [1, 3]] {
        let mut world = World::rebalancing(cluster(2, 1), &[3], &keep);
        world.standings.insert(NodeId(3), Standing { persisted: 7, ..stands(1, 9) });
        let mut moves = |ticks| {
            for _ in 0..ticks {
                world.step();
            }
            let chains = &world.cluster.buckets["b"].chains;
            assert!(chains.iter().all(|chain| !chain.held), "writers need not wait for that");
            let is_moving = chains.iter().all(|chain| !chain.next.is_empty());
            world.standings.insert(NodeId(3), stands(1, 9));
            is_moving
        };
        assert!(moves(100));
        assert!(!moves(100));
    }
}

#[test]
fn a_rebalance_continues_when_a_lost_node_returns_before_it_was_replaced() {
    let mut world = World::rebalancing(cluster(3, 1), &[4], &[1, 2, 4]);
    while world.cluster.buckets["b"].chains.iter().all(|chain| chain.next.is_empty()) {
        world.step();
    }
    // The lease of the node has not ended.
    world.down = vec![NodeId(3)];
    while world.leader.fence.lost.is_empty() {
        world.step();
    }
    world.down.clear();
    for _ in 0..100 {
        world.step();
    }
    assert_eq!(world.cluster.rebalance, None);
    assert_eq!(world.cluster.nodes[&NodeId(3)].membership, Membership::Leaving);
}

#[test]
fn no_vbucket_moves_before_its_active_copy_knows_the_target() {
    let mut world = World::rebalancing(cluster(1, 0), &[2], &[2]);
    let elsewhere = Joint { next: vec![Some(NodeId(3))], from: 1, stored: 0 };
    let unknowing = Standing { joint: Some(elsewhere), ..stands(1, 9) };
    world.standings.insert(NodeId(1), unknowing);
    for _ in 0..100 {
        world.step();
    }
    let chains = &world.cluster.buckets["b"].chains;
    assert!(chains.iter().all(|chain| !chain.next.is_empty() && !chain.held));
}

#[test]
fn a_node_that_does_not_report_its_progress_is_named_while_the_failover_waits() {
    let mut world = World::rebalancing(cluster(1, 1), &[2, 3], &[1, 2, 3]);
    world.cluster.auto_failover.enabled = false;
    world.step();
    world.step();
    world.down = vec![NodeId(3)];
    let late = |world: &World| world.leader.late(world.now).into_iter().collect::<Vec<_>>();
    for _ in 0..10 {
        world.step();
    }
    assert_eq!(late(&world), []);
    for _ in 0..ANSWER_NS_MAX / TICK_NS {
        world.step();
    }
    assert_eq!(late(&world), [NodeId(3)]);
    world.down.clear();
    for _ in 0..10 {
        world.step();
    }
    assert_eq!(late(&world), []);
}
