//! GROUP BY.

use super::aggregate::Accumulator;
use super::{Operator, Rows, pushed};
use crate::run::Run;
use nacre_planner::{Group, Node};
use nacre_sql::{Context, Env, Result, Value, eval, key};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A group.
pub(super) struct Bucket {
    keys: Vec<Value>,
    pub accumulators: Vec<Accumulator>,
    rows: Vec<Value>,
}

impl Bucket {
    pub fn new(group: &Group, keys: Vec<Value>) -> Bucket {
        let accumulators =
            group.aggregates.iter().map(|(_, aggregate)| Accumulator::new(aggregate));
        Bucket { keys, accumulators: accumulators.collect(), rows: Vec::new() }
    }
}

pub(super) struct GroupRows {
    node: Rc<Node>,
    input: Rows,
    base: Env,
    groups: Option<VecDeque<Bucket>>,
}

impl GroupRows {
    pub fn new(node: Rc<Node>, input: Rows, base: Env) -> GroupRows {
        GroupRows { node, input, base, groups: None }
    }

    fn read(
        &mut self,
        group: &Group,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<VecDeque<Bucket>> {
        let mut places: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut buckets: VecDeque<Bucket> = VecDeque::new();
        while let Some(row) = self.input.next(run, context)? {
            let mut bytes = Vec::new();
            let mut keys = Vec::with_capacity(group.keys.len());
            for (_, expr, _) in &group.keys {
                let value = eval(expr, &row, context)?;
                key::encode(&value, false, &mut bytes);
                keys.push(value);
            }
            let (length, known) = (bytes.len(), buckets.len());
            let place = *places.entry(bytes).or_insert_with(|| {
                buckets.push_back(Bucket::new(group, keys));
                buckets.len() - 1
            });
            if buckets.len() > known {
                run.charge(length * 2 + 128)?;
            }
            let bucket = &mut buckets[place];
            for ((_, aggregate), accumulator) in
                group.aggregates.iter().zip(&mut bucket.accumulators)
            {
                run.charge(accumulator.add(aggregate, &row, context)?)?;
            }
            if let Some((_, names)) = &group.collect {
                let fields = names
                    .iter()
                    .map(|name| (name.clone(), row.get(name).cloned().unwrap_or_default()));
                let value = Value::object(fields);
                run.charge(value.size_bytes())?;
                bucket.rows.push(value);
            }
        }
        // Without keys there is always one group, even without rows.
        if buckets.is_empty() && group.keys.is_empty() {
            buckets.push_back(Bucket::new(group, Vec::new()));
        }
        Ok(buckets)
    }
}

impl Operator for GroupRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        let node = self.node.clone();
        let Node::Group(input, group) = &*node else { return Ok(None) };
        if self.groups.is_none() {
            self.groups = Some(match (&group.pushed, &**input) {
                (Some(pushed), Node::Scan(scan)) => {
                    pushed::read(group, pushed, scan, &self.base, run, context)?
                }
                _ => self.read(group, run, context)?,
            });
        }
        let Some(bucket) = self.groups.as_mut().and_then(VecDeque::pop_front) else {
            return Ok(None);
        };
        let mut row = self.base.clone();
        for ((name, _, alias), value) in group.keys.iter().zip(bucket.keys) {
            row = row.with(name, value.clone());
            if let Some(alias) = alias {
                row = row.with(alias, value);
            }
        }
        for ((name, aggregate), accumulator) in group.aggregates.iter().zip(&bucket.accumulators) {
            row = row.with(name, accumulator.value(&aggregate.name));
        }
        if let Some((name, _)) = &group.collect {
            row = row.with(name, Value::array(bucket.rows));
        }
        Ok(Some(row))
    }
}
