//! Terms of FROM: documents, covering entries, catalogs, and the elements of expressions.

use super::sort::page_of;
use super::spans::{partitions, spans};
use super::staged;
use super::wide::Wide;
use super::{Operator, PassThrough};
use crate::run::Run;
use crate::search::HitRows;
use nacre_datastore::{
    self as datastore, Document, DocumentRange, Documents, IndexRange, Indexed, Keyspace, Span,
};
use nacre_planner::{Access, IndexScan, Node, Passing, Scan, ScanSource};
use nacre_sql::index::Definition;
use nacre_sql::{Content, Context, Env, Host, Meta, Name, Result, Value, eval};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Number of documents requested first; each further batch is twice as large.
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 512;

/// A row of a term.
#[derive(Clone)]
pub(crate) struct Found {
    pub content: Content,
    pub meta: Option<Arc<Meta>>,
    /// Parts of an index entry, with the names that they are bound to.
    covers: Vec<(Name, Value)>,
}

impl Found {
    fn of_value(value: Value) -> Found {
        Found { content: value.into(), meta: None, covers: Vec::new() }
    }

    /// Returns `env` with the variables of this row.
    pub fn bind(self, env: &Env, alias: &Name) -> Env {
        let mut env = env.with_document(alias, self.content, self.meta);
        for (name, value) in self.covers {
            env = env.with(&name, value);
        }
        env
    }

    pub fn size_bytes(&self) -> usize {
        self.content.value().size_bytes()
            + self.covers.iter().map(|(_, value)| value.size_bytes()).sum::<usize>()
            + 64
    }
}

impl From<datastore::Found> for Found {
    fn from(datastore::Found { meta, content }: datastore::Found) -> Found {
        Found { content, meta: Some(meta), covers: Vec::new() }
    }
}

/// The data that a scan needs of each row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Covering entries.
    Entries,
    Documents,
    /// Documents that the response passes on unchanged.
    PassedOn,
    /// The same, if no details of the documents are needed.
    Alone,
}

/// The next rows of a scan.
type Batch = Documents<Found>;

/// The position of a scan.
enum Source {
    Ready,
    /// Documents in ID order after this one.
    Documents(Option<Name>),
    Keys(VecDeque<Name>),
    Entries(Box<Entries>),
    Hits(Box<HitRows>),
    Done,
}

/// The rows of a term, within the variables of an environment.
pub(crate) struct TermRows {
    source: Source,
    buffer: VecDeque<Found>,
    batch: usize,
    /// Keys of the last batch without a document.
    unfound: Vec<Name>,
}

impl TermRows {
    pub fn new() -> TermRows {
        let buffer = VecDeque::new();
        TermRows { source: Source::Ready, buffer, batch: BATCH_MIN, unfound: Vec::new() }
    }

    pub fn next(
        &mut self,
        scan: &Scan,
        env: &Env,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Option<Found>> {
        loop {
            if let Some(found) = self.buffer.pop_front() {
                return Ok(Some(found));
            }
            run.tick()?;
            match &scan.source {
                ScanSource::Keyspace { keyspace, access, covering } => {
                    self.open(scan, keyspace, access, env, run, context)?;
                    let wanted = match scan.passing {
                        _ if *covering => Wanted::Entries,
                        Passing::No => Wanted::Documents,
                        Passing::Some | Passing::All => Wanted::PassedOn,
                    };
                    self.fill(keyspace, access, wanted, usize::MAX, run)?;
                    if !scan.attributes.is_empty() {
                        self.add_attributes(keyspace, &scan.attributes, run)?;
                    }
                }
                _ if matches!(self.source, Source::Done) => {}
                ScanSource::Expr(expr) => {
                    self.source = Source::Done;
                    self.buffer = match eval(expr, env, context)? {
                        Value::Array(elements) => {
                            elements.iter().cloned().map(Found::of_value).collect()
                        }
                        Value::Missing => VecDeque::new(),
                        value => VecDeque::from([Found::of_value(value)]),
                    };
                }
                ScanSource::Catalog(name) => {
                    self.source = Source::Done;
                    let rows = run.service.catalog(name, run)?.into_iter().map(|(id, value)| {
                        let keyspace: Name = format!("system:{name}").into();
                        let meta = Meta { id, keyspace, json: true, ..Meta::default() };
                        Found { meta: Some(Arc::new(meta)), ..Found::of_value(value) }
                    });
                    self.buffer = rows.collect();
                }
            }
            if self.buffer.is_empty() && matches!(self.source, Source::Done) {
                return Ok(None);
            }
        }
    }

    /// Returns at most `max` of the next documents of a scan that passes all of them on; `None` if rows must be requested.
    fn next_range(
        &mut self,
        scan: &Scan,
        max: usize,
        env: &Env,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Option<DocumentRange>> {
        let ScanSource::Keyspace { keyspace, access, covering: false } = &scan.source else {
            return Ok(None);
        };
        self.open(scan, keyspace, access, env, run, context)?;
        while self.buffer.is_empty() && !matches!(self.source, Source::Done) {
            run.tick()?;
            let range = self.fill(keyspace, access, Wanted::Alone, max, run)?;
            if range.is_some() {
                return Ok(range);
            }
        }
        Ok(None)
    }

    /// Reads the extended attributes of the documents of a batch. A deleted document may also have some; it is then found by its
    /// key, as NULL.
    fn add_attributes(&mut self, keyspace: &Keyspace, names: &[Name], run: &Run<'_>) -> Result<()> {
        let unfound = std::mem::take(&mut self.unfound);
        let ids: Vec<Name> = self
            .buffer
            .iter()
            .filter_map(|row| Some(row.meta.as_ref()?.id.clone()))
            .chain(unfound.iter().cloned())
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut found = run.store.attributes(keyspace, &ids, names)?.into_iter();
        for row in &mut self.buffer {
            let Some(meta) = &mut row.meta else { continue };
            if let Some(attributes) = found.next().flatten() {
                Arc::make_mut(meta).xattrs = attributes;
            }
        }
        let name: Name = keyspace.to_string().into();
        let has_some =
            |attributes: &Value| attributes.as_object().is_some_and(|all| !all.is_empty());
        for (id, attributes) in unfound.into_iter().zip(found) {
            let Some(xattrs) = attributes.filter(has_some) else { continue };
            let meta = Meta { id, keyspace: name.clone(), json: true, xattrs, ..Meta::default() };
            self.buffer
                .push_back(Found { meta: Some(Arc::new(meta)), ..Found::of_value(Value::Null) });
        }
        Ok(())
    }

    fn open(
        &mut self,
        scan: &Scan,
        keyspace: &Keyspace,
        access: &Access,
        env: &Env,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<()> {
        if matches!(self.source, Source::Ready) {
            self.source = open(keyspace, access, env, run, context)?;
            if let (Some(limit), offset) = page_of(&scan.page, env, context)? {
                self.batch = limit.saturating_add(offset).clamp(1, BATCH_MAX);
            }
        }
        Ok(())
    }

    /// Reads at most `max` of the next rows into the buffer. Documents of which only number and size are known are returned
    /// instead.
    fn fill(
        &mut self,
        keyspace: &Keyspace,
        access: &Access,
        wanted: Wanted,
        max: usize,
        run: &Run<'_>,
    ) -> Result<Option<DocumentRange>> {
        let limit = self.batch.min(max);
        self.batch = (self.batch * 2).clamp(BATCH_MIN, BATCH_MAX);
        let (batch, ended) = match &mut self.source {
            Source::Documents(after) => {
                let found = run.store.scan(
                    keyspace,
                    after.as_deref(),
                    true,
                    limit,
                    &run.settings.consistency,
                )?;
                // A page may also be short because its documents are large.
                let ended = found.is_empty();
                *after = found.last().map(|document| document.id.clone()).or(after.take());
                (Batch::Each(of_documents(found, keyspace)), ended)
            }
            Source::Keys(ids) => {
                let ids: Vec<Name> = ids.drain(..limit.min(ids.len())).collect();
                let batch = fetch(keyspace, &ids, wanted, run)?;
                let ended = ids.is_empty();
                if let Batch::Each(rows) = &batch
                    && rows.len() < ids.len()
                {
                    let found: BTreeSet<&Name> =
                        rows.iter().filter_map(|row| Some(&row.meta.as_ref()?.id)).collect();
                    self.unfound = ids.iter().filter(|id| !found.contains(id)).cloned().collect();
                }
                (batch, ended)
            }
            Source::Entries(entries) => {
                if let Some(batch) = entries.documents(keyspace, limit, wanted, run)? {
                    let ended = batch.is_empty();
                    (batch, ended)
                } else {
                    let found = entries.next(keyspace, limit, run)?;
                    let ended = found.is_empty();
                    let batch = if wanted == Wanted::Entries {
                        let name: Name = keyspace.to_string().into();
                        let rows = found.into_iter().map(|entry| entry.covering(&name, access));
                        Batch::Each(rows.collect())
                    } else {
                        let ids: Vec<Name> = found.into_iter().map(|entry| entry.id).collect();
                        fetch(keyspace, &ids, wanted, run)?
                    };
                    (batch, ended)
                }
            }
            Source::Hits(hits) => {
                let found = hits.next(keyspace, limit, run)?;
                let ended = found.is_empty();
                (hit_documents(keyspace, found, hits.out(), wanted, run)?, ended)
            }
            Source::Ready | Source::Done => return Ok(None),
        };
        if ended {
            self.source = Source::Done;
        }
        match batch {
            Batch::Each(rows) => {
                self.buffer = rows.into();
                Ok(None)
            }
            Batch::Range(range) => Ok(Some(range)),
        }
    }
}

fn open(
    keyspace: &Keyspace,
    access: &Access,
    env: &Env,
    run: &Run<'_>,
    context: &Context<'_>,
) -> Result<Source> {
    let entries = |index: &IndexScan| Entries::open(index, env, context);
    Ok(match access {
        Access::Primary(_) | Access::Sequential => Source::Documents(None),
        Access::Keys(keys) => Source::Keys(match eval(keys, env, context)? {
            Value::String(id) => VecDeque::from([id]),
            Value::Array(ids) => ids.iter().filter_map(|id| Some(id.as_str()?.into())).collect(),
            _ => VecDeque::new(),
        }),
        Access::Index(index) => Source::Entries(Box::new(entries(index)?)),
        Access::Search(search) => Source::Hits(Box::new(HitRows::open(search, env, run, context)?)),
        Access::Union(indexes) => {
            let mut all = Entries { once: Some(BTreeSet::new()), ..Entries::default() };
            for index in indexes {
                all.scans.extend(entries(index)?.scans);
            }
            Source::Entries(Box::new(all))
        }
        Access::Intersect(indexes) => {
            let mut first = entries(&indexes[0])?;
            for index in &indexes[1..] {
                let mut other = entries(index)?;
                let mut ids = BTreeSet::new();
                loop {
                    let found = other.next(keyspace, BATCH_MAX, run)?;
                    if found.is_empty() {
                        break;
                    }
                    run.charge(found.iter().map(|entry| entry.id.len() + 32).sum())?;
                    ids.extend(found.into_iter().map(|entry| entry.id));
                }
                first.among.push(ids);
            }
            Source::Entries(Box::new(first))
        }
    })
}

struct Entry {
    parts: Vec<Value>,
    id: Name,
}

impl Entry {
    /// Creates a row without its document: the parts of the entry replace the document's fields.
    fn covering(self, keyspace: &Name, access: &Access) -> Found {
        let covers = match access {
            Access::Index(index) => {
                let constants = index.constants.iter();
                let constants = constants.map(|(bound, value)| (bound.name.clone(), value.clone()));
                index.covers.iter().cloned().zip(self.parts).chain(constants).collect()
            }
            _ => Vec::new(),
        };
        let meta = Meta { id: self.id, keyspace: keyspace.clone(), json: true, ..Meta::default() };
        Found { covers, meta: Some(Arc::new(meta)), ..Found::of_value(Value::Missing) }
    }
}

/// The rest of an index scan.
struct Part {
    /// The number of the index.
    index: u64,
    definition: Rc<Definition>,
    reverse: bool,
    partitions: Vec<u16>,
    spans: Vec<Span>,
    /// Number of completed spans: the first ones, or in reverse the last ones.
    done: usize,
    after: Option<Vec<u8>>,
    /// The state while its spans are read as one.
    wide: Option<Wide>,
}

/// Maximum number of spans in one request, because each call passes all of them.
const SPANS_MAX: usize = 1024;

impl Part {
    /// Returns the spans to request now.
    fn spans(&self) -> &[Span] {
        let left = self.spans.len() - self.done;
        let count = left.min(SPANS_MAX);
        if self.reverse {
            &self.spans[left - count..left]
        } else {
            &self.spans[self.done..][..count]
        }
    }

    /// Returns the range of its next entries.
    fn range(&self, limit: usize) -> IndexRange<'_> {
        let Part { index, reverse, partitions, after, .. } = self;
        let (index, reverse, after) = (*index, *reverse, after.as_deref());
        let (spans, limit) = match &self.wide {
            Some(wide) => (wide.whole(), Wide::batch(limit)),
            None => (self.spans(), limit),
        };
        IndexRange { index, partitions, spans, reverse, after, limit }
    }

    /// Processes found entries: keeps those within its spans, and continues after the last. Returns true if nothing is left.
    fn take(&mut self, found: &mut Vec<Vec<u8>>, ended: bool) -> bool {
        let last = found.last().cloned();
        let Some(wide) = &mut self.wide else { return self.advance(last, ended) };
        let goes_on = wide.keep(found, &self.spans, &mut self.done);
        self.after = last.or(self.after.take());
        if !goes_on {
            self.wide = None;
        }
        ended || self.done >= self.spans.len()
    }

    /// Continues at `low`; only for ascending scans.
    fn skip_to(&mut self, low: Vec<u8>) {
        debug_assert!(!self.reverse, "it goes on upwards");
        let passed = self.spans[self.done..].iter().take_while(|span| span.high <= low).count();
        self.done += passed;
        if let Some(span) = self.spans.get_mut(self.done)
            && span.low < low
        {
            span.low = low;
        }
        (self.after, self.wide) = (None, None);
    }

    /// Continues after an entry, or with the next spans if these are exhausted. Returns true if nothing is left.
    fn advance(&mut self, last: Option<Vec<u8>>, ended: bool) -> bool {
        if ended {
            self.done += self.spans().len();
            self.after = None;
            return self.done >= self.spans.len();
        }
        // Spans before the last entry are not requested again.
        let passed = match &last {
            Some(last) if !self.reverse => {
                self.spans().iter().take_while(|span| span.high <= *last).count()
            }
            _ => 0,
        };
        self.done += passed;
        self.after = last;
        false
    }
}

/// Entries in their stored form, and the definition of their index.
type OfIndex = (Vec<Vec<u8>>, Rc<Definition>);

/// Index entries in their stored form, for operators that need no rows.
pub(super) struct StoredEntries(Entries);

impl StoredEntries {
    /// Opens an index scan that cannot return a document twice; duplicates are not removed.
    pub fn open(index: &IndexScan, env: &Env, context: &Context<'_>) -> Result<StoredEntries> {
        Entries::open(index, env, context).map(StoredEntries)
    }

    /// Returns the next entries; empty after the last.
    pub fn next(
        &mut self,
        keyspace: &Keyspace,
        limit: usize,
        run: &Run<'_>,
    ) -> Result<Vec<Vec<u8>>> {
        Ok(self.0.stored(keyspace, limit, run)?.map_or_else(Vec::new, |(found, _)| found))
    }

    /// Continues at `low`, if that is after the current position.
    pub fn skip_to(&mut self, low: Vec<u8>) {
        if let Some(part) = self.0.scans.front_mut() {
            part.skip_to(low);
        }
    }
}

/// The entries of one or more indexes, one index after the other.
#[derive(Default)]
struct Entries {
    scans: VecDeque<Part>,
    /// The documents found so far, if they may be found again.
    once: Option<BTreeSet<Name>>,
    /// Sets of documents to which each result must belong.
    among: Vec<BTreeSet<Name>>,
}

impl Entries {
    fn open(index: &IndexScan, env: &Env, context: &Context<'_>) -> Result<Entries> {
        let (partitions, spans) = (partitions(index, env, context)?, spans(index, env, context)?);
        let part = Part {
            index: index.id,
            definition: Rc::clone(&index.definition),
            reverse: index.reverse,
            partitions,
            wide: Wide::of(&spans, index.reverse),
            spans,
            done: 0,
            after: None,
        };
        Ok(Entries {
            scans: VecDeque::from([part]),
            once: index.repeats().then(BTreeSet::new),
            among: Vec::new(),
        })
    }

    /// Returns the next entries in their stored form, with their index; `None` after the last.
    fn stored(
        &mut self,
        keyspace: &Keyspace,
        limit: usize,
        run: &Run<'_>,
    ) -> Result<Option<OfIndex>> {
        while let Some(part) = self.scans.front_mut() {
            let (mut found, ended) = if part.spans().is_empty() {
                (Vec::new(), true)
            } else {
                staged::entries(&part.definition, keyspace, &part.range(limit), run)?
            };
            let is_over = part.take(&mut found, ended);
            let definition = Rc::clone(&part.definition);
            if is_over {
                self.scans.pop_front();
            }
            if !found.is_empty() {
                return Ok(Some((found, definition)));
            }
        }
        Ok(None)
    }

    /// Returns the next wanted entries; empty after the last.
    fn next(&mut self, keyspace: &Keyspace, limit: usize, run: &Run<'_>) -> Result<Vec<Entry>> {
        while let Some((found, definition)) = self.stored(keyspace, limit, run)? {
            let mut entries = Vec::with_capacity(found.len());
            for entry in &found {
                let Some((parts, id)) = definition.decode(entry) else {
                    return Err(nacre_sql::Error::execution(
                        "an index has an entry of another document",
                    ));
                };
                entries.push(Entry { parts, id });
            }
            entries.retain(|entry| self.among.iter().all(|ids| ids.contains(&entry.id)));
            if let Some(once) = &mut self.once {
                entries.retain(|entry| once.insert(entry.id.clone()));
                run.charge(entries.iter().map(|entry| entry.id.len() + 32).sum())?;
            }
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the documents of the next entries, if they are passed on, the store returns them directly, and no entry must be
    /// inspected; `None` after the last.
    fn documents(
        &mut self,
        keyspace: &Keyspace,
        limit: usize,
        wanted: Wanted,
        run: &Run<'_>,
    ) -> Result<Option<Batch>> {
        let alone = match wanted {
            Wanted::Entries | Wanted::Documents => return Ok(None),
            Wanted::PassedOn => false,
            Wanted::Alone => true,
        };
        // Unwanted entries can be recognised only by inspecting them.
        let is_wide = self.scans.iter().any(|part| part.wide.is_some());
        if self.once.is_some()
            || !self.among.is_empty()
            || is_wide
            || run.state.in_transaction.get()
        {
            return Ok(None);
        }
        while let Some(part) = self.scans.front_mut() {
            if part.spans.is_empty() {
                self.scans.pop_front();
                continue;
            }
            let consistency = &run.settings.consistency;
            let indexed =
                run.store.scan_documents(keyspace, &part.range(limit), consistency, alone)?;
            let Some(Indexed { documents, last, is_whole }) = indexed else { return Ok(None) };
            // Without an entry there is no position to continue from.
            let ended = is_whole || last.is_none();
            if part.advance(last, ended) {
                self.scans.pop_front();
            }
            let batch = documents.map(Found::from);
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
        Ok(Some(Batch::Each(Vec::new())))
    }
}

fn of_documents(documents: impl IntoIterator<Item = Document>, keyspace: &Keyspace) -> Vec<Found> {
    let name: Name = keyspace.to_string().into();
    documents.into_iter().map(|document| document.found(&name).into()).collect()
}

fn fetch(keyspace: &Keyspace, ids: &[Name], wanted: Wanted, run: &Run<'_>) -> Result<Batch> {
    if ids.is_empty() {
        return Ok(Batch::Each(Vec::new()));
    }
    if matches!(wanted, Wanted::PassedOn | Wanted::Alone)
        && let Some(documents) = run.store.hold(keyspace, ids, wanted == Wanted::Alone)?
    {
        return Ok(documents.map(Found::from));
    }
    let found = run.store.fetch(keyspace, ids)?.into_iter().flatten();
    Ok(Batch::Each(of_documents(found, keyspace)))
}

/// Returns the documents of hits, in their order, each with its hit. Documents that were removed since they were indexed are
/// omitted.
fn hit_documents(
    keyspace: &Keyspace,
    hits: Vec<(Name, Value)>,
    out: &Name,
    wanted: Wanted,
    run: &Run<'_>,
) -> Result<Batch> {
    let ids: Vec<Name> = hits.iter().map(|(id, _)| id.clone()).collect();
    let batch = fetch(keyspace, &ids, wanted, run)?;
    if let Batch::Each(rows) = &batch {
        let mut hits = hits.into_iter();
        for meta in rows.iter().filter_map(|row| row.meta.as_ref()) {
            if let Some((_, hit)) = hits.find(|(id, _)| *id == meta.id) {
                meta.hits.put(out.clone(), hit);
            }
        }
    }
    Ok(batch)
}

/// The rows of the first term.
pub(super) struct ScanRows {
    node: Rc<Node>,
    base: Env,
    rows: TermRows,
}

impl ScanRows {
    pub fn new(node: Rc<Node>, base: Env) -> ScanRows {
        ScanRows { node, base, rows: TermRows::new() }
    }
}

impl Operator for ScanRows {
    fn next(&mut self, run: &Run<'_>, context: &Context<'_>) -> Result<Option<Env>> {
        let Node::Scan(scan) = &*self.node else { return Ok(None) };
        let found = self.rows.next(scan, &self.base, run, context)?;
        Ok(found.map(|found| found.bind(&self.base, &scan.alias)))
    }

    fn next_pass_through(
        &mut self,
        max: usize,
        run: &Run<'_>,
        context: &Context<'_>,
    ) -> Result<Option<PassThrough>> {
        let Node::Scan(scan) = &*self.node else { return Ok(None) };
        if scan.passing != Passing::All {
            return Ok(None);
        }
        let range = self.rows.next_range(scan, max, &self.base, run, context)?;
        Ok(range.map(|documents| PassThrough { documents, name: None }))
    }
}
