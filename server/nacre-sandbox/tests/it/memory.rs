//! Limits of memory for instances and state when the node has less than the deployment's own
//! limits.

use crate::fixture::{NOW, Stream, design, query, views};
use nacre_sandbox::{AccountLimit, Budgets, Error, Partition, Purpose, Request, Setup};
use nacre_state::MemoryStorage;

const MIB: usize = 1 << 20;

fn open(
    name: &str,
    map: &str,
    budgets: &Budgets,
    storage: MemoryStorage,
) -> Result<Partition, Error> {
    let setup = Setup { budgets: budgets.clone(), ..Setup::new(name, design(map, None)) };
    Partition::open(views(), setup, Box::new(storage))
}

const PLAIN: &str = "function (doc, meta) { emit(meta.id, null) }";
/// Emits about 100 KB of rows for each document.
const GREEDY: &str =
    "function (doc, meta) { for (var i = 0; i < 200; i++) emit([i, meta.id], 'x'.repeat(500)) }";

fn documents(stream: &mut Stream, numbers: std::ops::Range<usize>) -> nacre_dcp::Batch {
    let keys: Vec<_> = numbers.map(|number| format!("k{number}")).collect();
    stream.batch(keys.iter().map(|key| (&key[..], Some("{}"))))
}

#[test]
fn an_instance_is_charged_to_its_caller_and_released_afterwards() {
    let budgets = Budgets::default();
    let mut partition = open("d", PLAIN, &budgets, MemoryStorage::default()).unwrap();
    partition.on_batch(&documents(&mut Stream::default(), 0..10), NOW).unwrap();
    let held = |purpose| budgets.requests.held_for(purpose);
    let ann = budgets.of_user("ann");
    let asked = Request { path: "/v".into(), ..Request::default() };
    let reader = partition.reader();
    let answer = reader.handle_for(&asked, NOW, Some(ann.clone())).unwrap();
    let instance = partition.status().memory_bytes - budgets.writers.held();
    if held(Purpose::Instance) > 0 {
        assert_eq!((held(Purpose::Instance), ann.held()), (instance, instance));
    }
    answer.collect().unwrap();
    assert_eq!((held(Purpose::Instance), ann.held(), held(Purpose::Idle)), (0, 0, instance));

    budgets.requests.set_limit(16 * MIB);
    let mut others = budgets.requests.account("others", AccountLimit::None).permit(Purpose::Answer);
    others.set(16 * MIB);
    let mut of_ann = ann.permit(Purpose::Answer);
    of_ann.set(5 * MIB);
    let error = reader.handle_for(&asked, NOW, Some(ann)).err().unwrap();
    assert!(matches!(error, Error::NodeMemory { .. }) && error.is_retryable(), "{error}");
    drop((others, of_ann));
    assert!(query(&reader, "").starts_with("{\"total_rows\":10,"), "others are served");
}

#[test]
fn instances_that_have_grown_large_are_not_kept() {
    let budgets = Budgets::default();
    let mut partition = open("d", PLAIN, &budgets, MemoryStorage::default()).unwrap();
    partition.on_batch(&documents(&mut Stream::default(), 0..1), NOW).unwrap();
    // An instance needs several times the size of its request.
    let asked = Request { path: "/v".into(), body: vec![b' '; 16 * MIB], ..Request::default() };
    let answered = partition.reader().handle(&asked, NOW).and_then(|answer| answer.collect());
    assert!(answered.is_ok());
    assert_eq!(budgets.requests.held_for(Purpose::Idle), 0);
    assert_eq!(budgets.requests.held(), 0);
}

#[test]
fn a_state_that_outgrows_the_memory_of_the_node_stops_and_gives_it_back() {
    let budgets = Budgets::default();
    budgets.state.set_limit(80 * MIB);
    let (one, other) = (MemoryStorage::default(), MemoryStorage::default());
    let mut greedy = open("greedy", GREEDY, &budgets, one).unwrap();
    let mut plain = open("plain", PLAIN, &budgets, other).unwrap();
    let mut stream = Stream::default();
    let mut batches = (0..100).map(|round| documents(&mut stream, round * 20..round * 20 + 20));
    let error = batches.find_map(|batch| {
        plain.on_batch(&batch, NOW).unwrap();
        let error = greedy.on_batch(&batch, NOW).err();
        assert!(error.is_some() || budgets.state.held() < 41 * MIB, "{}", budgets.state.held());
        error
    });
    drop(batches);
    let error = error.expect("200 MB of rows do not fit");
    assert!(error.is_state_full() && matches!(error, Error::NodeState { .. }), "{error}");
    assert!(error.to_string().contains("--memory"));
    let limit = budgets.state.limit();
    greedy.abandon(&error.to_string(), limit);
    assert!(budgets.state.held() < MIB, "the other one has little");
    let asked = Request { path: "/v".into(), ..Request::default() };
    assert!(matches!(greedy.reader().handle(&asked, NOW), Err(Error::Stopped { .. })));
    plain.on_batch(&documents(&mut stream, 2000..2020), NOW).unwrap();
}

#[test]
fn a_state_that_does_not_fit_any_more_is_not_opened() {
    let budgets = Budgets::default();
    let storage = MemoryStorage::default();
    let mut partition = open("d", GREEDY, &budgets, storage.clone()).unwrap();
    let mut stream = Stream::default();
    partition.on_batch(&documents(&mut stream, 0..100), NOW).unwrap();
    assert!(partition.status().state_bytes > 8 * MIB);
    drop(partition);
    budgets.state.set_limit(10 * MIB);
    let error = open("d", GREEDY, &budgets, storage.clone()).err().unwrap();
    assert!(matches!(error, Error::NodeState { .. }), "{error}");
    budgets.state.set_limit(100 * MIB);
    assert!(open("d", GREEDY, &budgets, storage).is_ok());
}
