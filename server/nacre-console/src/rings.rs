//! What was measured, for as long as charts show it: the finer, the shorter.
//!
//! ```text
//! 1 s × 600     the last ten minutes
//! 10 s × 360    the last hour
//! 60 s × 1440   the last day
//! 600 s × 1008  the last week
//! ```
//!
//! A slot holds the mean of the samples that fall into it. A slot without samples is a gap, never a zero.
//!
//! *Invariants:* a series takes 13.6 KB whatever is measured; there are at most [`SERIES_MAX`] series.

use std::collections::BTreeMap;

/// Series that are kept.
pub const SERIES_MAX: usize = 2_000;
/// Seconds of a slot, and number of slots, of each ring.
const RINGS: [(u64, usize); 4] = [(1, 600), (10, 360), (60, 1440), (600, 1008)];

/// Slots of one width.
#[derive(Debug)]
struct Ring {
    step_s: u64,
    values: Box<[f32]>,
    /// Number of the newest slot, counted from the Unix epoch.
    newest: u64,
    /// Sum and number of the samples in the newest slot.
    sum: f64,
    count: u32,
}

impl Ring {
    fn new((step_s, slots): (u64, usize)) -> Ring {
        Ring { step_s, values: vec![f32::NAN; slots].into(), newest: 0, sum: 0.0, count: 0 }
    }

    fn push(&mut self, at_s: u64, value: f64) {
        let slot = at_s / self.step_s;
        // A clock that steps back adds to the newest slot.
        if slot > self.newest {
            let skipped = (slot - self.newest).min(self.values.len() as u64);
            for gap in slot + 1 - skipped..=slot {
                let index = self.index(gap);
                self.values[index] = f32::NAN;
            }
            (self.newest, self.sum, self.count) = (slot, 0.0, 0);
        }
        self.sum += value;
        self.count += 1;
        let index = self.index(self.newest);
        self.values[index] = (self.sum / f64::from(self.count)) as f32;
    }

    fn index(&self, slot: u64) -> usize {
        (slot % self.values.len() as u64) as usize
    }

    /// The values of the slots `first..=last`.
    fn values(&self, first: u64, last: u64) -> Vec<f32> {
        let oldest = (self.newest + 1).saturating_sub(self.values.len() as u64);
        let of = |slot: u64| match (oldest..=self.newest).contains(&slot) {
            true => self.values[self.index(slot)],
            false => f32::NAN,
        };
        (first..=last).map(of).collect()
    }
}

/// The rings of one series.
#[derive(Debug)]
struct Series {
    rings: [Ring; RINGS.len()],
    /// When a sample was added last, in seconds since the Unix epoch.
    at_s: u64,
}

/// Where a stretch of time is divided into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Seconds of a slot.
    pub step_s: u64,
    /// When the first begins, in seconds since the Unix epoch.
    pub start_s: u64,
    /// How many there are.
    pub count: usize,
    ring: usize,
}

impl Slots {
    /// The slots of the last `range_s` seconds before `now_s`: of the finest ring that reaches back so far.
    pub fn of(range_s: u64, now_s: u64) -> Slots {
        let reaches = |(step_s, slots): &(u64, usize)| step_s * *slots as u64 >= range_s;
        let ring = RINGS.iter().position(reaches).unwrap_or(RINGS.len() - 1);
        let (step_s, slots) = RINGS[ring];
        let count = ((range_s / step_s) as usize).clamp(1, slots);
        let last = now_s / step_s;
        let first = (last + 1).saturating_sub(count as u64);
        Slots { step_s, start_s: first * step_s, count: (last + 1 - first) as usize, ring }
    }
}

/// All series of a node, by name.
#[derive(Debug, Default)]
pub struct Rings {
    series: BTreeMap<String, Series>,
}

impl Rings {
    /// Adds a sample.
    pub fn push(&mut self, name: &str, at_s: u64, value: f64) {
        if !self.series.contains_key(name) {
            if self.series.len() >= SERIES_MAX {
                self.remove_oldest();
            }
            let series = Series { rings: RINGS.map(Ring::new), at_s };
            self.series.insert(name.to_owned(), series);
        }
        let series = self.series.get_mut(name).expect("it was just added");
        series.at_s = at_s;
        series.rings.iter_mut().for_each(|ring| ring.push(at_s, value));
    }

    /// Makes room: the series goes that was not measured for the longest time.
    fn remove_oldest(&mut self) {
        let oldest = self.series.iter().min_by_key(|(_, series)| series.at_s);
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.series.remove(&name);
        }
    }

    /// Returns the values in `slots` of the series whose names `wants` accepts; a gap is not a number.
    pub fn values(&self, slots: Slots, wants: impl Fn(&str) -> bool) -> Vec<(String, Vec<f32>)> {
        let first = slots.start_s / slots.step_s;
        let last = first + slots.count as u64 - 1;
        let wanted = self.series.iter().filter(|(name, _)| wants(name));
        let values = |series: &Series| series.rings[slots.ring].values(first, last);
        wanted.map(|(name, series)| (name.clone(), values(series))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_minute(rings: &Rings, now_s: u64) -> Vec<f32> {
        rings.values(Slots::of(60, now_s), |name| name == "a").remove(0).1
    }

    #[test]
    fn a_slot_has_the_mean_of_its_samples_and_a_gap_is_not_zero() {
        let mut rings = Rings::default();
        rings.push("a", 1000, 1.0);
        rings.push("a", 1000, 3.0);
        rings.push("a", 1003, 8.0);
        let values = last_minute(&rings, 1003);
        assert_eq!(values.len(), 60);
        assert_eq!(values[56..57], [2.0]);
        assert!(values[57].is_nan() && values[58].is_nan() && values[0].is_nan());
        assert_eq!(values[59], 8.0);
        let hour = rings.values(Slots::of(3600, 1003), |_| true).remove(0).1;
        assert_eq!((hour.len(), hour[hour.len() - 1]), (101, 4.0));
    }

    #[test]
    fn old_values_are_not_read_as_new_ones_after_a_pause() {
        let mut rings = Rings::default();
        for at_s in 1000..1600 {
            rings.push("a", at_s, 1.0);
        }
        rings.push("a", 1630, 2.0);
        let values = last_minute(&rings, 1630);
        assert_eq!(values.iter().filter(|value| **value == 1.0).count(), 29);
        assert!(values[30..59].iter().all(|value| value.is_nan()));
        rings.push("a", 1_000_000, 3.0);
        assert!(last_minute(&rings, 1_000_000)[..59].iter().all(|value| value.is_nan()));
        assert!(last_minute(&rings, 2_000_000).iter().all(|value| value.is_nan()));
    }

    #[test]
    fn a_clock_that_steps_back_loses_nothing() {
        let mut rings = Rings::default();
        rings.push("a", 1000, 1.0);
        rings.push("a", 990, 3.0);
        assert_eq!(last_minute(&rings, 1000)[59], 2.0);
    }

    #[test]
    fn the_finest_ring_that_reaches_back_is_read() {
        for (range_s, step_s, count) in
            [(60, 1, 60), (600, 1, 600), (3600, 10, 360), (86_400, 60, 1440), (604_800, 600, 1008)]
        {
            let slots = Slots::of(range_s, 1_764_000_000);
            assert_eq!((slots.step_s, slots.count), (step_s, count), "{range_s}");
        }
        assert_eq!(Slots::of(u64::MAX, 1_764_000_000).count, 1008);
        assert_eq!(Slots::of(0, 0), Slots { step_s: 1, start_s: 0, count: 1, ring: 0 });
    }

    #[test]
    fn the_number_of_series_is_limited() {
        let mut rings = Rings::default();
        for number in 0..=SERIES_MAX as u64 {
            rings.push(&format!("s{number}"), 1000 + number, 1.0);
        }
        let names = rings.values(Slots::of(1, 5000), |_| true);
        assert_eq!(names.len(), SERIES_MAX);
        assert!(names.iter().all(|(name, _)| name != "s0"), "the oldest went");
    }
}
