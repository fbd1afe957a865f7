//! Faults and their repair.

use super::copies::Successor;
use super::plan::{MS, SECOND};
use super::simulation::{Event, Simulation};
use nacre_types::{Seqno, VbUuid, Vbid};
use nacre_xdcr::Input;

/// Age in seconds at which tombstones are purged in worlds with premature purges.
const PURGED_AFTER_S: u32 = 3;

/// Injects a fault, and schedules the next one.
pub(super) fn inject(world: &mut Simulation) {
    if world.is_healed {
        return;
    }
    let pause_ns = world.chance.between(50, 1500) * MS;
    world.after(pause_ns, Event::Break);
    let mix = world.plan.mix;
    type Fault = fn(&mut Simulation);
    let kinds: [(u64, Fault); 7] = [
        (mix.failovers, fail_over),
        (mix.cuts, cut),
        (mix.pauses, pause),
        (mix.troubles, trouble),
        (mix.flushes, flush),
        (mix.purges, purge),
        (mix.steps, step),
    ];
    let mut drawn = world.chance.below(mix.total());
    for (weight, kind) in kinds {
        if drawn < weight {
            return kind(world);
        }
        drawn -= weight;
    }
}

/// Repairs everything.
pub(super) fn heal(world: &mut Simulation) {
    world.is_healed = true;
    for link in &mut world.links {
        (link.requests_lost_until_ns, link.answers_lost_until_ns) = (0, 0);
    }
    for cluster in &mut world.clusters {
        (cluster.busy_until_ns, cluster.refuses_until_ns, cluster.fails_until_ns) = (0, 0, 0);
        cluster.vbuckets.iter_mut().for_each(|copies| copies.moving_until_ns = 0);
    }
    world.say(|| "everything is put right".to_owned());
    world.note_disturbance();
}

fn place(world: &mut Simulation) -> (usize, Vbid) {
    let cluster = world.chance.below(world.clusters.len() as u64) as usize;
    let count = u64::from(world.plan.clusters[cluster].vbuckets);
    (cluster, Vbid(world.chance.below(count) as u16))
}

fn fail_over(world: &mut Simulation) {
    let (cluster, vbid) = place(world);
    let now_ns = world.now_ns;
    if now_ns < world.clusters[cluster].vbuckets[vbid.index()].moving_until_ns {
        return;
    }
    let successor = world.chance.one_of(&[Successor::Replica, Successor::Disk]);
    let vb_uuid = VbUuid::of_random(world.chance.number());
    let away_ns = world.chance.one_of(&[0, 20, 200, 1500]) * MS;
    let had = world.clusters[cluster].vbuckets[vbid.index()].active.high_seqno();
    let copies = &mut world.clusters[cluster].vbuckets[vbid.index()];
    let left = copies.succeed(successor, vb_uuid);
    copies.moving_until_ns = now_ns + away_ns;
    world.ledger.lose(cluster, vbid, left);
    world.summary.failovers += 1;
    world.say(|| format!("cluster {cluster} {vbid}: {successor:?} goes on at {left} of {had}"));
    if away_ns == 0 && world.chance.once_in(2) {
        // The pipelines survive the failover.
        for pipe in world.pipes_of(cluster, vbid) {
            let state = world.source_state(pipe);
            world.feed(pipe, Input::SourceChanged(state));
        }
    } else {
        world.end_pipes(cluster, vbid);
        world.after(away_ns, Event::Serve { cluster, vbid });
    }
    world.note_disturbance();
}

fn cut(world: &mut Simulation) {
    let index = world.chance.below(world.links.len() as u64) as usize;
    let most_ms = if world.plan.mix.purges > 0 { 6000 } else { 3000 };
    let until_ns = world.now_ns + world.chance.between(100, most_ms) * MS;
    let which = world.chance.below(3);
    let link = &mut world.links[index];
    if which != 1 {
        link.requests_lost_until_ns = until_ns;
    }
    if which != 2 {
        link.answers_lost_until_ns = until_ns;
    }
    world.say(|| format!("link {index} is cut, {which}, until {until_ns}"));
    if world.chance.once_in(2) {
        for pipe in 0..world.pipes.len() {
            if world.pipes[pipe].link == index {
                world.feed(pipe, Input::LinkLost);
            }
        }
    }
}

fn pause(world: &mut Simulation) {
    let pipe = world.chance.below(world.pipes.len() as u64) as usize;
    let delay_ns = world.chance.between(100, 3000) * MS;
    if !world.pipes[pipe].is_resting && !world.pipes[pipe].is_paused {
        world.pipes[pipe].is_paused = true;
        world.feed(pipe, Input::Pause);
        world.after(delay_ns, Event::Resume { pipe });
    }
}

fn trouble(world: &mut Simulation) {
    let (cluster, _) = place(world);
    let until_ns = world.now_ns + world.chance.between(100, 3000) * MS;
    let which = world.chance.below(3);
    let it = &mut world.clusters[cluster];
    match which {
        0 => it.busy_until_ns = until_ns,
        1 => it.refuses_until_ns = until_ns,
        _ => it.fails_until_ns = until_ns,
    }
}

fn flush(world: &mut Simulation) {
    let (cluster, _) = place(world);
    for number in 0..world.plan.clusters[cluster].vbuckets {
        let vbid = Vbid(number);
        let vb_uuid = VbUuid::of_random(world.chance.number());
        world.clusters[cluster].vbuckets[vbid.index()].throw_away(vb_uuid);
        world.ledger.lose(cluster, vbid, Seqno::ZERO);
        for pipe in world.pipes_of(cluster, vbid) {
            let state = world.source_state(pipe);
            world.feed(pipe, Input::SourceChanged(state));
        }
    }
    world.say(|| format!("cluster {cluster} is flushed"));
    world.note_disturbance();
}

fn purge(world: &mut Simulation) {
    let (cluster, vbid) = place(world);
    let unix_s = world.clock(cluster).unix_s() - PURGED_AFTER_S;
    let count = world.change(cluster, vbid, None, |copies, _| {
        copies.flush(false);
        copies.purge(unix_s)
    });
    world.say(|| format!("cluster {cluster} {vbid}: {count} tombstones are forgotten"));
}

fn step(world: &mut Simulation) {
    let (cluster, _) = place(world);
    let by_ns = world.chance.below(4 * SECOND) as i64 - 2 * SECOND as i64;
    world.clusters[cluster].skew_ns += by_ns;
}
