//! Priorities of threads on Linux.

use nacre_server::Priority;

/// Niceness of background threads. Measured beside an endless map function: with 10 the p99 of reads nearly doubles,
/// with 19 it stays within a quarter. The price: on a saturated machine a view falls behind until there is time again.
const BACKGROUND_NICENESS: i32 = 19;
/// Niceness of commands that leave the processors to others: on a saturated machine they still get a tenth of the share of another thread,
/// as a backup has to end.
const COMMAND_NICENESS: i32 = 10;
/// Time slice of background threads, in nanoseconds: the smallest that Linux accepts, from 6.12 on, and a fourteenth of
/// the slice of other threads on two processors.
const BACKGROUND_SLICE_NS: u64 = 100_000;
/// Niceness of urgent threads, where this process has the right to it. On a busy machine other nodes would otherwise take this one for
/// lost.
const URGENT_NICENESS: i32 = -15;

/// Schedules the calling thread. A thread without the right to a higher priority stays as nice as the one that has started it.
pub fn apply(priority: Priority) {
    match priority {
        Priority::Usual => be_ordinary(0),
        Priority::Urgent => be_ordinary(URGENT_NICENESS),
        Priority::FirstOfBackground => be_ordinary(BACKGROUND_NICENESS),
        Priority::Background => be_batch(BACKGROUND_NICENESS),
    }
}

/// Lets other processes go first. Must be called before the process starts threads, which inherit it.
pub fn give_way() {
    be_batch(COMMAND_NICENESS);
}

/// A batch thread that wakes preempts no other thread. The thread of a failing plugin wakes again and again.
fn be_batch(niceness: i32) {
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: niceness,
        sched_priority: 0,
        sched_runtime: BACKGROUND_SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the call reads `raw`, whose size is in it; pid 0 means the calling thread.
    let refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } != 0;
    if refused {
        be_nice(niceness);
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
    use nacre_bucket::{Next, Signal, Task};

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

    /// Returns niceness and policy of a thread for such a task, which a thread of priority `by` starts.
    fn started(by: Priority, is_background: bool, is_urgent: bool) -> (i32, i32) {
        let started = move || {
            apply(Priority::of(&Probe { is_background, is_urgent }));
            own()
        };
        let starts = std::thread::spawn(move || {
            apply(by);
            std::thread::spawn(started).join().unwrap()
        });
        starts.join().unwrap()
    }

    /// Returns niceness and policy of the calling thread.
    fn own() -> (i32, i32) {
        // SAFETY: both take numbers only; with 0 they ask about the calling thread.
        unsafe { (libc::getpriority(libc::PRIO_PROCESS, 0), libc::sched_getscheduler(0)) }
    }

    #[test]
    fn the_threads_of_a_command_that_gives_way_do_so_too() {
        let command = std::thread::spawn(|| {
            give_way();
            [own(), std::thread::spawn(own).join().unwrap()]
        });
        assert_eq!(command.join().unwrap(), [(COMMAND_NICENESS, libc::SCHED_BATCH); 2]);
    }

    #[test]
    fn a_thread_has_the_priority_of_its_task() {
        assert_eq!(started(Priority::Urgent, false, false), (0, libc::SCHED_OTHER));
        assert_eq!(
            started(Priority::Urgent, true, false),
            (BACKGROUND_NICENESS, libc::SCHED_BATCH)
        );
        // Without the right to a higher priority, it runs with the default one, or with that of its parent.
        for (by, is_urgent, wanted, otherwise) in [
            (Priority::Usual, true, URGENT_NICENESS, 0),
            (Priority::Background, false, 0, BACKGROUND_NICENESS),
            (Priority::Background, true, URGENT_NICENESS, BACKGROUND_NICENESS),
        ] {
            let (niceness, policy) = started(by, false, is_urgent);
            assert_eq!(policy, libc::SCHED_OTHER);
            assert!([wanted, otherwise].contains(&niceness), "{niceness}");
        }
    }
}
