//! Which threads come before others when there are fewer processors than threads that want to run.

use nacre_bucket::Task;

/// How much less often a background thread runs than others when both want to, as `nice` counts. Measured beside an
/// endless map function: with 10 the p99 of reads nearly doubles, with 19 it stays within a quarter. The price: on a saturated machine a view
/// falls behind until there is air again.
const BACKGROUND_NICENESS: i32 = 19;
/// For how long a background thread that has just begun to run keeps the processor from others that wake, in nanoseconds: the least
/// that Linux takes, from 6.12 on, and a fourteenth of what it gives to others on two processors.
const BACKGROUND_SLICE_NS: u64 = 100_000;
/// How much more often a thread runs on which the whole node depends, where this process may ask for that. On a busy machine
/// other nodes would otherwise take this one for lost.
const URGENT_NICENESS: i32 = -15;

/// Has the calling thread run as is right for a task. Without it a thread runs as the one does that has started it.
pub fn be_right_for(task: &dyn Task) {
    match (task.is_background(), task.is_urgent()) {
        (true, _) => be_background(),
        (false, true) => be_urgent(),
        (false, false) => be_usual(),
    }
}

/// Has the calling thread run as most do. Who lacks the right to it stays as nice as a background thread that has started it.
fn be_usual() {
    be_ordinary(0);
}

/// Has the calling thread come after others, and before background threads when it wakes.
pub fn be_first_of_background() {
    be_ordinary(BACKGROUND_NICENESS);
}

/// Has the calling thread come before others, where the system lets it.
pub fn be_urgent() {
    be_ordinary(URGENT_NICENESS);
}

/// Has the calling thread come after others. It interrupts nobody else when it wakes, as one does again and again whose plugin fails
/// and rests.
fn be_background() {
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: BACKGROUND_NICENESS,
        sched_priority: 0,
        sched_runtime: BACKGROUND_SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: it reads what is wanted, whose size is told; with 0 it changes the calling thread.
    let refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } != 0;
    if refused {
        be_nice(BACKGROUND_NICENESS);
    }
}

fn be_ordinary(niceness: i32) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: it reads the parameters only; with 0 it changes the calling thread. A refusal is harmless.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) };
    be_nice(niceness);
}

fn be_nice(niceness: i32) {
    // SAFETY: setpriority takes numbers only; with 0 it changes the calling thread. A refusal is harmless.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_bucket::{Next, Signal};

    struct Probe {
        is_background: bool,
        is_urgent: bool,
    }

    impl Task for Probe {
        fn name(&self) -> &'static str {
            "probe"
        }

        fn is_background(&self) -> bool {
            self.is_background
        }

        fn is_urgent(&self) -> bool {
            self.is_urgent
        }

        fn step(&mut self) -> Next {
            Next::Done
        }

        fn signal(&self) -> &Signal {
            unreachable!("it never waits")
        }
    }

    /// How a thread for such a task runs that another one starts: its niceness, and its policy.
    fn started(by: fn(), is_background: bool, is_urgent: bool) -> (i32, i32) {
        let started = move || {
            be_right_for(&Probe { is_background, is_urgent });
            // SAFETY: both take numbers only; with 0 they ask about the calling thread.
            unsafe { (libc::getpriority(libc::PRIO_PROCESS, 0), libc::sched_getscheduler(0)) }
        };
        let starts = std::thread::spawn(move || {
            by();
            std::thread::spawn(started).join().unwrap()
        });
        starts.join().unwrap()
    }

    #[test]
    fn a_thread_runs_as_its_task_wants_whoever_starts_it() {
        assert_eq!(started(be_urgent, false, false), (0, libc::SCHED_OTHER));
        assert_eq!(started(be_urgent, true, false), (BACKGROUND_NICENESS, libc::SCHED_BATCH));
        // Without the right to come before others, it runs as most do, or as nice as who has started it.
        for (by, is_urgent, wanted, otherwise) in [
            (be_usual as fn(), true, URGENT_NICENESS, 0),
            (be_background, false, 0, BACKGROUND_NICENESS),
            (be_background, true, URGENT_NICENESS, BACKGROUND_NICENESS),
        ] {
            let (niceness, policy) = started(by, false, is_urgent);
            assert_eq!(policy, libc::SCHED_OTHER);
            assert!([wanted, otherwise].contains(&niceness), "{niceness}");
        }
    }
}
