//! Measures what an analyst costs the users of a node, how fresh analytics is, and how fast it takes documents in.
//!
//! ```text
//! terminals ─ new orders by key ─► node ─ DCP ─► analytics ◄─ the queries of CH2, one after the other ─ analyst
//! writer    ─ writes at a rate  ─►                         ◄─ query until a write is visible          ─ probe
//! ```
//!
//! A new order reads its warehouse and customer, counts up its district, reads its items, changes their stock, and writes the order:
//! single operations by key with CAS, without a transaction. Runs without and with the analyst are paired, in alternating order.

use crate::Outcome;
use nacre_ch2::{Options, QUERIES, TABLES, generate};
use nacre_client::{
    BASIC_FEATURES, Bucket, Connection, Document, Error, Key, Login, Request, Rest, StoreOptions,
    TrustedRoots,
};
use nacre_protocol::{Opcode, Status};
use nacre_types::{Vbid, leb128_encode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads that enter orders.
const TERMINALS: usize = 2;
/// The collection of the writer and the probe.
const WRITTEN: &str = "written";
/// Keys of the writer.
const WRITTEN_KEYS: u64 = 100_000;
/// Writes that are sent at once.
const BATCH: usize = 64;
/// Clock ticks per second in `/proc`. Source: the constant of Linux on all common processors.
const TICKS_PER_SECOND: f64 = 100.0;
/// Time limit for a new collection to be usable.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before a refused write is repeated.
const PAUSE: Duration = Duration::from_millis(5);

/// The node, and the extent of the measurement.
#[derive(Clone)]
struct Bench {
    key_values: String,
    rest: String,
    analytics: String,
    user: String,
    password: String,
    bucket: String,
    /// The process of analytics.
    process: u32,
    options: Options,
    rounds: usize,
    seconds: f64,
    /// Writes per second while freshness is measured.
    rate: u64,
}

/// Measures, and prints tables in Markdown.
///
/// # Errors
/// The first error.
pub fn run(arguments: &[String]) -> Outcome<()> {
    const USAGE: &str = "use: ch2 isolation KEY_VALUES REST_URL ANALYTICS_URL USER PASSWORD BUCKET PROCESS WAREHOUSES DIVISOR ROUNDS \
                         SECONDS RATE";
    let [key_values, rest, analytics, user, password, bucket, numbers @ ..] = arguments else {
        return Err(USAGE.into());
    };
    let [process, warehouses, divisor, rounds, seconds, rate] = numbers else {
        return Err(USAGE.into());
    };
    let options = Options { warehouses: warehouses.parse()?, divisor: divisor.parse()?, seed: 1 };
    let bench = Bench {
        key_values: key_values.clone(),
        rest: rest.clone(),
        analytics: analytics.clone(),
        user: user.clone(),
        password: password.clone(),
        bucket: bucket.clone(),
        process: process.parse()?,
        options,
        rounds: rounds.parse()?,
        seconds: seconds.parse()?,
        rate: rate.parse()?,
    };
    let loaded = bench.load()?;
    bench.ingest(&loaded)?;
    bench.isolation()?;
    bench.freshness()
}

/// Documents and bytes of each table.
type Loaded = BTreeMap<String, (u64, u64)>;

impl Bench {
    fn rest_client(&self, url: &str) -> Rest {
        let hosts = [url.to_owned()];
        Rest::new(&hosts, &self.user, &self.password, &TrustedRoots::default())
    }

    fn bucket(&self) -> Outcome<Bucket> {
        let login = Login {
            user: self.user.clone(),
            password: self.password.clone(),
            bucket: self.bucket.clone(),
        };
        Ok(Bucket::connect(std::slice::from_ref(&self.key_values), None, login)?)
    }

    /// Creates a collection, and returns its ID once the node knows it.
    fn create(&self, bucket: &mut Bucket, name: &str) -> Outcome<u32> {
        let path = format!("/pools/default/buckets/{}/scopes/_default/collections", self.bucket);
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let body = format!("name={name}");
        let made = self.rest_client(&self.rest).call_with("POST", &path, &form, body.as_bytes())?;
        if !made.is_success() {
            return Err(format!("cannot create {name}: {} {}", made.status, made.text).into());
        }
        collection(bucket, name)
    }

    /// Runs a statement, and returns the rows.
    fn ask(&self, client: &Rest, statement: &str, is_consistent: bool) -> Outcome<Vec<Value>> {
        let consistency = if is_consistent { "request_plus" } else { "not_bounded" };
        let body = json!({"statement": statement, "scan_consistency": consistency}).to_string();
        let kind = [("content-type", "application/json")];
        let reply = client.call_with("POST", "/analytics/service", &kind, body.as_bytes())?;
        let mut answer: Value = serde_json::from_str(&reply.text)?;
        match (answer["status"] == "success", answer["results"].take()) {
            (true, Value::Array(rows)) => Ok(rows),
            (true, _) => Ok(Vec::new()),
            (false, _) => Err(format!("{statement}: {}", reply.text).into()),
        }
    }

    /// Writes the documents to the node.
    fn load(&self) -> Outcome<Loaded> {
        let mut bucket = self.bucket()?;
        let mut ids = BTreeMap::new();
        for table in TABLES {
            ids.insert(table, self.create(&mut bucket, table)?);
        }
        let (mut pipe, mut loaded, mut outcome) = (Pipe::new(self)?, Loaded::new(), Ok(()));
        generate(self.options, &mut |table, key, json| {
            let (count, bytes) = loaded.entry(table.to_owned()).or_default();
            (*count, *bytes) = (*count + 1, *bytes + json.len() as u64);
            if outcome.is_ok() {
                outcome = pipe.put(ids[table], key, json);
            }
        });
        outcome?;
        pipe.settle()?;
        Ok(loaded)
    }

    /// Lets analytics follow the collections, and waits until it has all documents.
    fn ingest(&self, loaded: &Loaded) -> Outcome<()> {
        let client = self.rest_client(&self.analytics);
        let (began, before) = (Instant::now(), processor_seconds(self.process)?);
        for table in TABLES {
            let bucket = &self.bucket;
            let created =
                format!("CREATE ANALYTICS COLLECTION `{table}` ON `{bucket}`.`_default`.`{table}`");
            self.ask(&client, &created, false)?;
        }
        for (table, (count, _)) in loaded {
            let counted = format!("SELECT VALUE COUNT(*) FROM `{table}` d");
            let rows = self.ask(&client, &counted, true)?;
            if rows != [json!(count)] {
                return Err(format!("{table}: {rows:?} instead of {count} documents").into());
            }
        }
        let (took, used) =
            (began.elapsed().as_secs_f64(), processor_seconds(self.process)? - before);
        let bytes: u64 = loaded.values().map(|(_, bytes)| bytes).sum();
        let megabytes = bytes as f64 / 1e6;
        println!(
            "Ingest: {megabytes:.0} MB of JSON in {took:.1} s, with {used:.1} s of processor time: {:.1} MB/s a core.\n",
            megabytes / used
        );
        Ok(())
    }

    /// Measures pairs without and with an analyst.
    fn isolation(&self) -> Outcome<()> {
        self.measure(false)?;
        let mut pairs = Vec::new();
        for round in 0..self.rounds {
            let is_first = round % 2 == 0;
            let first = self.measure(!is_first)?;
            let second = self.measure(is_first)?;
            let (alone, beside) = if is_first { (first, second) } else { (second, first) };
            pairs.push((alone, beside));
        }
        println!(
            "| round | tpM | with analyst | ratio | p99, us | with analyst | ratio | queries |"
        );
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        for (round, (alone, beside)) in (1..).zip(&pairs) {
            println!(
                "| {round} | {:.0} | {:.0} | {:.3} | {:.0} | {:.0} | {:.2} | {} |",
                alone.per_minute,
                beside.per_minute,
                beside.per_minute / alone.per_minute,
                alone.p99_us,
                beside.p99_us,
                beside.p99_us / alone.p99_us,
                beside.queries
            );
        }
        let middle = |of: fn(&Figures) -> f64| {
            let ratios = pairs.iter().map(|(alone, beside)| of(beside) / of(alone));
            median(ratios.collect())
        };
        println!(
            "\nMedian ratios of {} pairs of {} s, {TERMINALS} terminals: tpM {:.3}, p50 of operations by key {:.2}, p99 {:.2}.\n",
            self.rounds,
            self.seconds,
            middle(|figures| figures.per_minute),
            middle(|figures| figures.p50_us),
            middle(|figures| figures.p99_us)
        );
        Ok(())
    }

    /// Lets the terminals enter orders for a while.
    fn measure(&self, with_analyst: bool) -> Outcome<Figures> {
        let is_over = AtomicBool::new(false);
        let until = Instant::now() + Duration::from_secs_f64(self.seconds);
        let over = &is_over;
        let (terminals, queries) = std::thread::scope(|threads| {
            let analyst = with_analyst.then(|| threads.spawn(move || shown(self.analyse(over))));
            let terminals: Vec<_> = (0..TERMINALS)
                .map(|number| threads.spawn(move || shown(self.enter_orders(number, until))))
                .collect();
            let terminals: Vec<_> = terminals.into_iter().map(|one| ended(one.join())).collect();
            over.store(true, Ordering::Relaxed);
            (terminals, analyst.map_or(Ok(0), |analyst| ended(analyst.join())))
        });
        let (mut orders, mut took) = (0_u32, Vec::new());
        for terminal in terminals {
            let (count, latencies) = terminal?;
            orders += count;
            took.extend(latencies);
        }
        took.sort_unstable();
        Ok(Figures {
            per_minute: f64::from(orders) * 60.0 / self.seconds,
            p50_us: percentile(&took, 50),
            p99_us: percentile(&took, 99),
            queries: queries?,
        })
    }

    /// Runs the queries one after the other until it is over. Returns the number of answers.
    fn analyse(&self, is_over: &AtomicBool) -> Outcome<u64> {
        let client = self.rest_client(&self.analytics);
        let mut count = 0;
        for (_, query, _) in QUERIES.iter().cycle() {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            self.ask(&client, query, false)?;
            count += 1;
        }
        Ok(count)
    }

    /// Enters orders. Returns their number, and the microseconds of each operation by key.
    fn enter_orders(&self, number: usize, until: Instant) -> Outcome<(u32, Vec<u32>)> {
        let mut terminal = Terminal::new(self, number as u64)?;
        let mut orders = 0;
        while Instant::now() < until {
            terminal.order()?;
            orders += 1;
        }
        Ok((orders, terminal.took))
    }

    /// Measures the time from the acknowledgement of a write to the answer that shows it, while a writer works.
    fn freshness(&self) -> Outcome<()> {
        let mut bucket = self.bucket()?;
        let id = self.create(&mut bucket, WRITTEN)?;
        let client = self.rest_client(&self.analytics);
        let (name, of) = (&self.bucket, WRITTEN);
        let created = format!("CREATE ANALYTICS COLLECTION `{of}` ON `{name}`.`_default`.`{of}`");
        self.ask(&client, &created, false)?;
        self.ask(&client, &format!("SELECT VALUE COUNT(*) FROM `{of}` d"), true)?;
        let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let began = Instant::now();
        let (probed, writer) = std::thread::scope(|threads| {
            let writer = threads.spawn(|| shown(self.write(id, &is_over, &written)));
            let until = began + Duration::from_secs_f64(self.seconds);
            let probed = self.probe(&mut bucket, id, &client, until);
            is_over.store(true, Ordering::Relaxed);
            (probed, ended(writer.join()))
        });
        let took = began.elapsed().as_secs_f64();
        writer?;
        let mut delays = probed?;
        delays.sort_unstable();
        let ms = |percent| percentile(&delays, percent) / 1000.0;
        println!(
            "Freshness: {} of {} writes/s; {} probes: p50 {:.0} ms, p99 {:.0} ms, maximum {:.0} ms.",
            (written.load(Ordering::Relaxed) as f64 / took).round(),
            self.rate,
            delays.len(),
            ms(50),
            ms(99),
            ms(100)
        );
        Ok(())
    }

    /// Writes at the rate until it is over.
    fn write(&self, id: u32, is_over: &AtomicBool, written: &AtomicU64) -> Outcome<()> {
        let mut pipe = Pipe::new(self)?;
        let began = Instant::now();
        let text = "x".repeat(150);
        for number in 0_u64.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let due = began + Duration::from_secs_f64(number as f64 / self.rate as f64);
            let early = due.saturating_duration_since(Instant::now());
            if early > Duration::from_millis(1) {
                pipe.settle()?;
                std::thread::sleep(early);
            }
            let json = format!("{{\"n\":{number},\"text\":\"{text}\"}}");
            pipe.put(id, &format!("w{}", number % WRITTEN_KEYS), &json)?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        pipe.settle()
    }

    /// Writes documents and queries each until it is visible. Returns the delays in microseconds.
    fn probe(
        &self,
        bucket: &mut Bucket,
        id: u32,
        client: &Rest,
        until: Instant,
    ) -> Outcome<Vec<u32>> {
        let mut delays = Vec::new();
        for number in 0_u64.. {
            if Instant::now() >= until {
                break;
            }
            let (name, json) = (format!("probe{}", number % 100), json!({"probe": number}));
            let key = Key { collection: id, name: name.as_bytes() };
            bucket.set(key, json.to_string().as_bytes(), StoreOptions::default())?;
            let acknowledged = Instant::now();
            let query = format!("SELECT VALUE 1 FROM `{WRITTEN}` d WHERE d.probe = {number}");
            while self.ask(client, &query, false)?.is_empty() {
                if acknowledged.elapsed() > PATIENCE {
                    return Err(format!("the write {number} does not become visible").into());
                }
            }
            delays.push(micros(acknowledged));
        }
        Ok(delays)
    }
}

/// The figures of a run.
struct Figures {
    per_minute: f64,
    p50_us: f64,
    p99_us: f64,
    queries: u64,
}

/// Returns an error as text, which threads can return.
fn shown<T>(outcome: Outcome<T>) -> Result<T, String> {
    outcome.map_err(|error| error.to_string())
}

fn ended<T>(joined: std::thread::Result<Result<T, String>>) -> Result<T, String> {
    joined.unwrap_or_else(|_| Err("a thread has panicked".to_owned()))
}

fn micros(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// Returns a percentile of sorted values; 0 for none.
fn percentile(sorted: &[u32], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |value| f64::from(*value))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the seconds of processor time of a process.
fn processor_seconds(process: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the process, in parentheses, may have spaces. The state follows, then numbers.
    let (_, fields) = stat.rsplit_once(')').ok_or("a line of /proc has no name")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = (ticks(11), ticks(12));
    let ticks = user.zip(system).ok_or("a line of /proc has no times")?;
    Ok((ticks.0 + ticks.1) / TICKS_PER_SECOND)
}

/// Returns the ID of a collection once the node knows it.
fn collection(bucket: &mut Bucket, name: &str) -> Outcome<u32> {
    let began = Instant::now();
    loop {
        match bucket.collection_id(&format!("_default.{name}")) {
            Ok(id) => return Ok(id),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// A connection with many writes in flight.
struct Pipe {
    connection: Connection,
    batch: Vec<(Vbid, Vec<u8>, Vec<u8>)>,
}

impl Pipe {
    fn new(bench: &Bench) -> Outcome<Pipe> {
        let login = [bench.user.as_str(), &bench.password, &bench.bucket];
        let connection = Connection::connect(&bench.key_values, None, login, BASIC_FEATURES)?;
        Ok(Pipe { connection, batch: Vec::new() })
    }

    fn put(&mut self, collection: u32, name: &str, json: &str) -> Outcome<()> {
        let mut key = Vec::with_capacity(name.len() + 5);
        leb128_encode(collection, &mut key);
        key.extend_from_slice(name.as_bytes());
        let vbid = self.connection.map().vbucket_of(name.as_bytes());
        self.batch.push((vbid, key, json.as_bytes().to_vec()));
        if self.batch.len() < BATCH { Ok(()) } else { self.settle() }
    }

    /// Sends the writes, and waits for all replies. A write that is refused temporarily is repeated.
    fn settle(&mut self) -> Outcome<()> {
        let Pipe { connection, batch } = self;
        while !batch.is_empty() {
            for (vbid, key, value) in &*batch {
                let opcode = Opcode::Set as u8;
                let (vbid, extras) = (*vbid, &[0_u8; 8]);
                connection.send(Request { opcode, vbid, extras, key, value, ..Request::default() });
            }
            connection.flush()?;
            let mut refused = Vec::new();
            for write in batch.drain(..) {
                match connection.receive(|frame| frame.vbid)? {
                    status if status == Status::Success as u16 => {}
                    status if status == Status::TemporaryFailure as u16 => refused.push(write),
                    status => return Err(format!("a write is refused: status {status}").into()),
                }
            }
            if !refused.is_empty() {
                std::thread::sleep(PAUSE);
            }
            *batch = refused;
        }
        Ok(())
    }
}

/// Enters orders.
struct Terminal {
    bucket: Bucket,
    ids: BTreeMap<&'static str, u32>,
    random: StdRng,
    options: Options,
    /// Microseconds of each operation.
    took: Vec<u32>,
}

impl Terminal {
    fn new(bench: &Bench, seed: u64) -> Outcome<Terminal> {
        let mut bucket = bench.bucket()?;
        let mut ids = BTreeMap::new();
        for table in TABLES {
            ids.insert(table, collection(&mut bucket, table)?);
        }
        let random = StdRng::seed_from_u64(seed);
        Ok(Terminal { bucket, ids, random, options: bench.options, took: Vec::new() })
    }

    fn get(&mut self, table: &str, name: &str) -> Outcome<(u64, Value)> {
        let key = Key { collection: self.ids[table], name: name.as_bytes() };
        let began = Instant::now();
        let found = self.bucket.get(key)?;
        self.took.push(micros(began));
        let Some(Document { cas, value, .. }) = found else {
            return Err(format!("{table} has no {name}").into());
        };
        Ok((cas, serde_json::from_slice(&value)?))
    }

    fn put(&mut self, table: &str, name: &str, cas: u64, json: &Value) -> Result<(), Error> {
        let key = Key { collection: self.ids[table], name: name.as_bytes() };
        let options = StoreOptions { cas, ..StoreOptions::default() };
        let json = json.to_string();
        let began = Instant::now();
        let stored = self.bucket.set(key, json.as_bytes(), options);
        self.took.push(micros(began));
        stored.map(drop)
    }

    /// Changes a document, again if another terminal has changed it meanwhile. Returns the new version.
    fn change(&mut self, table: &str, name: &str, change: impl Fn(&mut Value)) -> Outcome<Value> {
        loop {
            let (cas, mut json) = self.get(table, name)?;
            change(&mut json);
            match self.put(table, name, cas, &json) {
                Ok(()) => return Ok(json),
                Err(error) if error.status() == Some(Status::KeyExists as u16) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn order(&mut self) -> Outcome<()> {
        let Options { warehouses, divisor, .. } = self.options;
        let warehouse = self.random.random_range(1..=warehouses);
        let district = self.random.random_range(1..=10);
        let customer = self.random.random_range(1..=3000 / divisor);
        self.get("warehouse", &warehouse.to_string())?;
        self.get("customer", &format!("{warehouse}.{district}.{customer}"))?;
        let place = format!("{warehouse}.{district}");
        let changed = self.change("district", &place, |district| {
            let next = district["d_next_o_id"].as_i64().unwrap_or(0);
            district["d_next_o_id"] = json!(next + 1);
        })?;
        let id = changed["d_next_o_id"].as_i64().unwrap_or(0) - 1;
        let count = self.random.random_range(5..=15);
        let mut lines = Vec::new();
        for number in 0..count {
            let item = self.random.random_range(1..=100_000 / divisor);
            let quantity = self.random.random_range(1..=10);
            lines.push(self.line(warehouse, number, item, quantity)?);
        }
        let order = json!({
            "o_id": id, "o_d_id": district, "o_w_id": warehouse, "o_c_id": customer,
            "o_entry_d": "2020-12-31 12:00:00", "o_carrier_id": 0, "o_ol_cnt": count, "o_all_local": 1,
            "o_orderline": lines,
        });
        let name = format!("{place}.{id}");
        self.put("orders", &name, 0, &order)?;
        let new = json!({"no_o_id": id, "no_d_id": district, "no_w_id": warehouse});
        Ok(self.put("neworder", &name, 0, &new)?)
    }

    /// Takes the quantity from the stock, and returns the line.
    fn line(&mut self, warehouse: i64, number: i64, item: i64, quantity: i64) -> Outcome<Value> {
        let (_, found) = self.get("item", &item.to_string())?;
        self.change("stock", &format!("{warehouse}.{item}"), |stock| {
            let number = |name: &str| stock[name].as_i64().unwrap_or(0);
            let left = number("s_quantity") - quantity;
            let (ytd, orders) = (number("s_ytd") + quantity, number("s_order_cnt") + 1);
            stock["s_quantity"] = json!(if left < 10 { left + 91 } else { left });
            stock["s_ytd"] = json!(ytd);
            stock["s_order_cnt"] = json!(orders);
        })?;
        let amount = found["i_price"].as_f64().unwrap_or(0.0) * quantity as f64;
        Ok(json!({
            "ol_number": number, "ol_i_id": item, "ol_supply_w_id": warehouse, "ol_delivery_d": null,
            "ol_quantity": quantity, "ol_amount": amount, "ol_dist_info": "",
        }))
    }
}
