//! Window functions: rows are partitioned and sorted, and each gets a value computed from the rows
//! around it.

use super::aggregate::Accumulator;
use super::sort::compare;
use super::{Operator, Rows};
use crate::run::Run;
use nacre_planner::Node;
use nacre_sql::ast::{Aggregate, Exclude, Frame, FrameBound, FrameUnit, Over, Window};
use nacre_sql::functions::number;
use nacre_sql::{Context, Env, Error, Host, Result, Value, eval, key};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::vec::IntoIter;

pub(super) struct WindowRows {
    node: Rc<Node>,
    input: Rows,
    rows: Option<IntoIter<Env>>,
}

impl WindowRows {
    pub fn new(node: Rc<Node>, input: Rows) -> WindowRows {
        WindowRows { node, input, rows: None }
    }
}

impl Operator for WindowRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        let node = self.node.clone();
        let Node::Window(_, functions) = &*node else { return Ok(None) };
        if self.rows.is_none() {
            let mut rows = Vec::new();
            while let Some(row) = self.input.next(run, context)? {
                run.charge(128)?;
                rows.push(row);
            }
            let mut finished = rows.clone();
            for (name, function) in functions {
                let values = evaluate(function, &rows, run, context)?;
                for (row, value) in finished.iter_mut().zip(values) {
                    *row = row.with(name, value);
                }
            }
            self.rows = Some(finished.into_iter());
        }
        Ok(self.rows.as_mut().and_then(Iterator::next))
    }
}

/// A row of a partition: its position among all rows, and its values of ORDER BY.
struct Member<'a> {
    place: usize,
    keys: Vec<Value>,
    row: &'a Env,
}

/// The sorted rows of a partition, and the function to compute.
struct Partition<'a> {
    members: Vec<Member<'a>>,
    /// For each row, the range of rows that are equal in the order.
    peers: Vec<Range<usize>>,
    window: &'a Window,
    function: &'a Aggregate,
}

fn evaluate(
    function: &Aggregate,
    rows: &[Env],
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<Vec<Value>> {
    let Some(Over::Window(window)) = &function.over else { return Ok(Vec::new()) };
    let mut partitions: BTreeMap<Vec<u8>, Vec<Member<'_>>> = BTreeMap::new();
    for (place, row) in rows.iter().enumerate() {
        let mut bytes = Vec::new();
        for expr in &window.partition {
            key::encode(&eval(expr, row, context)?, false, &mut bytes);
        }
        let keys: Vec<Value> = window
            .order
            .iter()
            .map(|term| eval(&term.expr, row, context))
            .collect::<Result<_>>()?;
        run.charge(bytes.len() + 64 + keys.iter().map(Value::size_bytes).sum::<usize>())?;
        partitions.entry(bytes).or_default().push(Member { place, keys, row });
    }
    let mut values = vec![Value::Null; rows.len()];
    for mut members in partitions.into_values() {
        members.sort_by(|a, b| compare(&window.order, &a.keys, &b.keys));
        let peers = peers(&members, window);
        let partition = Partition { members, peers, window, function };
        for (at, value) in partition.values(run, context)?.into_iter().enumerate() {
            values[partition.members[at].place] = value;
        }
    }
    Ok(values)
}

fn peers(members: &[Member<'_>], window: &Window) -> Vec<Range<usize>> {
    let mut peers: Vec<Range<usize>> = Vec::with_capacity(members.len());
    let mut from = 0;
    for at in 1..=members.len() {
        let ends = at == members.len()
            || compare(&window.order, &members[from].keys, &members[at].keys).is_ne();
        if ends {
            peers.extend(std::iter::repeat_n(from..at, at - from));
            from = at;
        }
    }
    peers
}

impl Partition<'_> {
    fn values(&self, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
        let count = self.members.len();
        match &*self.function.name {
            "row_number" => Ok((1..=count as i64).map(Value::Int).collect()),
            "rank" => {
                Ok(self.peers.iter().map(|peers| Value::Int(peers.start as i64 + 1)).collect())
            }
            "dense_rank" => Ok(self.dense_ranks()),
            "percent_rank" => Ok(self.shares(|peers| match count {
                1 => 0.0,
                _ => peers.start as f64 / (count - 1) as f64,
            })),
            "cume_dist" => Ok(self.shares(|peers| peers.end as f64 / count as f64)),
            "ntile" => self.tiles(context),
            "lag" => self.neighbours(-1, context),
            "lead" => self.neighbours(1, context),
            "ratio_to_report" => self.ratios(run, context),
            _ => self.framed(run, context),
        }
    }

    fn dense_ranks(&self) -> Vec<Value> {
        let mut rank = 0;
        let ranks = self.peers.iter().enumerate().map(|(at, peers)| {
            rank += i64::from(peers.start == at);
            Value::Int(rank)
        });
        ranks.collect()
    }

    fn shares(&self, share: impl Fn(&Range<usize>) -> f64) -> Vec<Value> {
        self.peers.iter().map(|peers| Value::number(share(peers))).collect()
    }

    fn arg(&self, number: usize, at: usize, context: &Context<'_>) -> Result<Value> {
        let arg = self.function.args.get(number);
        arg.map_or(Ok(Value::Missing), |arg| eval(arg, self.members[at].row, context))
    }

    /// Divides the rows into parts of equal size; the first ones may have one row more.
    fn tiles(&self, context: &Context<'_>) -> Result<Vec<Value>> {
        let count = self.members.len();
        let tiles =
            match self.arg(0, 0, context)?.as_i64().and_then(|tiles| usize::try_from(tiles).ok()) {
                Some(tiles) if tiles > 0 => tiles,
                _ => return Err(Error::execution("NTILE needs a positive number")),
            };
        let (size, larger) = (count / tiles, count % tiles);
        let tile = |at: usize| {
            let in_larger = larger * (size + 1);
            if at < in_larger { at / (size + 1) } else { larger + (at - in_larger) / size.max(1) }
        };
        Ok((0..count).map(|at| Value::Int(tile(at) as i64 + 1)).collect())
    }

    fn neighbours(&self, direction: i64, context: &Context<'_>) -> Result<Vec<Value>> {
        let count = self.members.len() as i64;
        let mut values = Vec::with_capacity(self.members.len());
        for at in 0..count {
            let distance = match self.arg(1, at as usize, context)? {
                Value::Missing => 1,
                distance => {
                    distance.as_i64().filter(|distance| *distance >= 0).ok_or_else(|| {
                        Error::execution(
                            "the distance of LAG and LEAD is a number that is not negative",
                        )
                    })?
                }
            };
            let mut left = distance;
            let mut place = if self.function.ignore_nulls {
                at
            } else {
                at.saturating_add(direction.saturating_mul(distance))
            };
            while self.function.ignore_nulls && left > 0 {
                place += direction;
                if !(0..count).contains(&place) {
                    break;
                }
                left -= i64::from(self.arg(0, place as usize, context)?.is_known());
            }
            values.push(if (0..count).contains(&place) {
                self.arg(0, place as usize, context)?
            } else {
                match self.arg(2, at as usize, context)? {
                    Value::Missing => Value::Null,
                    default => default,
                }
            });
        }
        Ok(values)
    }

    fn ratios(&self, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
        let values: Vec<Value> =
            (0..self.members.len()).map(|at| self.arg(0, at, context)).collect::<Result<_>>()?;
        let sum = |places: &mut dyn Iterator<Item = usize>| {
            let numbers = places.map(|at| &values[at]).filter(|value| value.as_f64().is_some());
            numbers.fold(Value::Int(0), |sum, value| number::add(&sum, value))
        };
        let whole = sum(&mut (0..values.len()));
        let mut ratios = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            run.tick()?;
            let range = self.range(at, context)?;
            let is_whole = range == (0..values.len()) && !self.excludes();
            ratios.push(if is_whole {
                number::divide(value, &whole)
            } else {
                let mut places = range.filter(|place| !self.excluded(at, *place));
                number::divide(value, &sum(&mut places))
            });
        }
        Ok(ratios)
    }

    /// Computes aggregates, and values at positions of the frame.
    fn framed(&self, run: &Run<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(self.members.len());
        let mut running = Accumulator::new(self.function);
        let mut taken = 0;
        let excludes = self.excludes();
        for at in 0..self.members.len() {
            run.tick()?;
            let range = self.range(at, context)?;
            if matches!(&*self.function.name, "first_value" | "last_value" | "nth_value") {
                values.push(self.place_value(at, range, context)?);
                continue;
            }
            // Frames that only grow at their end reuse the previous result.
            if range.start == 0 && range.end >= taken && !excludes {
                for member in &self.members[taken..range.end] {
                    run.charge(running.add(self.function, member.row, context)?)?;
                }
                taken = range.end;
                let value = running.value(&self.function.name);
                run.charge(value.size_bytes())?;
                values.push(value);
                continue;
            }
            let mut own = Accumulator::new(self.function);
            let mut held = 0;
            for place in range.filter(|place| !self.excluded(at, *place)) {
                run.tick()?;
                let grown = own.add(self.function, self.members[place].row, context)?;
                run.charge(grown)?;
                held += grown;
            }
            let value = own.value(&self.function.name);
            run.give_back(held);
            run.charge(value.size_bytes())?;
            values.push(value);
        }
        Ok(values)
    }

    fn frame(&self) -> Option<&Frame> {
        self.window.frame.as_ref()
    }

    fn excludes(&self) -> bool {
        self.frame().is_some_and(|frame| frame.exclude != Exclude::NoOthers)
    }

    fn excluded(&self, at: usize, place: usize) -> bool {
        match self.frame().map(|frame| frame.exclude) {
            None | Some(Exclude::NoOthers) => false,
            Some(Exclude::CurrentRow) => place == at,
            Some(Exclude::Group) => self.peers[at].contains(&place),
            Some(Exclude::Ties) => place != at && self.peers[at].contains(&place),
        }
    }

    fn place_value(&self, at: usize, range: Range<usize>, context: &Context<'_>) -> Result<Value> {
        let mut places: Vec<usize> = range.filter(|place| !self.excluded(at, *place)).collect();
        let name = &*self.function.name;
        if name == "last_value" || self.function.from_last {
            places.reverse();
        }
        let nth = match name {
            "nth_value" => self
                .arg(1, at, context)?
                .as_i64()
                .filter(|nth| *nth > 0)
                .ok_or_else(|| Error::execution("NTH_VALUE needs a positive number"))?,
            _ => 1,
        };
        let mut left = nth;
        for place in places {
            let value = self.arg(0, place, context)?;
            if self.function.ignore_nulls && !value.is_known() {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(value);
            }
        }
        Ok(Value::Null)
    }

    /// Returns the rows of the frame of a row.
    fn range(&self, at: usize, context: &Context<'_>) -> Result<Range<usize>> {
        let Some(frame) = self.frame() else {
            // The default frame: all rows, or with an order, all up to the row and its peers.
            return Ok(0..if self.window.order.is_empty() {
                self.members.len()
            } else {
                self.peers[at].end
            });
        };
        // A frame with a distance from a value that is not a number is empty.
        let is_number = || self.members[at].keys.first().is_some_and(|key| key.as_f64().is_some());
        let has_distance = [&frame.start, &frame.end]
            .iter()
            .any(|bound| matches!(bound, FrameBound::Preceding(_) | FrameBound::Following(_)));
        if frame.unit == FrameUnit::Range && has_distance && !is_number() {
            return Ok(0..0);
        }
        let start = self.bound(frame, &frame.start, at, true, context)?;
        let end = self.bound(frame, &frame.end, at, false, context)?;
        Ok(start.min(end)..end)
    }

    fn bound(
        &self,
        frame: &Frame,
        bound: &FrameBound,
        at: usize,
        is_start: bool,
        context: &Context<'_>,
    ) -> Result<usize> {
        let count = self.members.len();
        let (distance, sign) = match bound {
            FrameBound::UnboundedPreceding => return Ok(0),
            FrameBound::UnboundedFollowing => return Ok(count),
            FrameBound::CurrentRow => (Value::Int(0), 1),
            FrameBound::Preceding(distance) => (eval(distance, self.members[at].row, context)?, -1),
            FrameBound::Following(distance) => (eval(distance, self.members[at].row, context)?, 1),
        };
        let Some(amount) = distance.as_f64().filter(|amount| *amount >= 0.0) else {
            return Err(Error::execution(
                "the distance in a frame is a number that is not negative",
            ));
        };
        let steps = sign * (amount.min(1e15) as i64);
        let clamp = |place: i64| place.clamp(0, count as i64) as usize;
        Ok(match frame.unit {
            FrameUnit::Rows => clamp(at as i64 + steps + i64::from(!is_start)),
            FrameUnit::Groups => self.group_bound(at, steps, is_start),
            FrameUnit::Range if amount == 0.0 => {
                if is_start {
                    self.peers[at].start
                } else {
                    self.peers[at].end
                }
            }
            FrameUnit::Range => self.value_bound(at, sign as f64 * amount, is_start),
        })
    }

    fn group_bound(&self, at: usize, steps: i64, is_start: bool) -> usize {
        let mut range = self.peers[at].clone();
        for _ in 0..steps.unsigned_abs() {
            let next = if steps < 0 {
                range.start.checked_sub(1)
            } else {
                Some(range.end).filter(|end| *end < self.peers.len())
            };
            let Some(next) = next else {
                // There are no groups at this distance.
                return if steps < 0 { 0 } else { self.peers.len() };
            };
            range = self.peers[next].clone();
        }
        if is_start { range.start } else { range.end }
    }

    /// Returns the position where the values of the only term of ORDER BY pass the row's own value
    /// by an amount.
    fn value_bound(&self, at: usize, amount: f64, is_start: bool) -> usize {
        let own = self.members[at].keys.first().and_then(Value::as_f64).unwrap_or_default();
        let term = &self.window.order[..1];
        let wanted = Value::number(if term[0].descending { own - amount } else { own + amount });
        self.members.partition_point(|member| {
            let order = compare(term, &member.keys, std::slice::from_ref(&wanted));
            if is_start { order.is_lt() } else { order.is_le() }
        })
    }
}
