//! A test environment: a clock that changes only when it is set, randomness from a counter, and an
//! in-memory store.

use nacre_evaluator::{CallContext, HostQueries, Library};
use nacre_query::{
    Action, Datastore, Evaluator, FunctionPath, Keyspace, MemoryDatastore, Mutation, Platform,
    Request, Script, Searcher, Service,
};
use nacre_sql::{Error, Name, Result, Value};
use serde_json::value::RawValue;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A platform that ends requests after a number of checks.
pub struct TestPlatform {
    chance: Cell<u64>,
    pub now_us: Cell<i64>,
    patience: Cell<u64>,
}

impl TestPlatform {
    pub fn with_patience(questions: u64) -> TestPlatform {
        TestPlatform {
            chance: Cell::new(1),
            now_us: Cell::new(1_700_000_000_000_000),
            patience: Cell::new(questions),
        }
    }
}

impl Platform for TestPlatform {
    fn now_us(&self) -> i64 {
        self.now_us.get()
    }

    fn random(&self) -> u64 {
        let next = self
            .chance
            .get()
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.chance.set(next);
        next
    }

    fn check(&self) -> Result<()> {
        match self.patience.get() {
            0 => Err(Error::new(1080, "Timeout exceeded")),
            left => {
                self.patience.set(left - 1);
                Ok(())
            }
        }
    }
}

/// Libraries by their paths.
pub type Libraries = Rc<RefCell<BTreeMap<String, String>>>;

struct Scripts(Libraries);

impl Evaluator for Scripts {
    fn call(&self, path: &FunctionPath, script: &Script, arguments: &str) -> Result<String> {
        let failed = |message: String| Error::new(10109, message);
        let (code, function) = match script {
            Script::Code(code) => (code.to_string(), path.name.clone()),
            Script::Deployed { deployment, .. } => {
                return Err(failed(format!("there is no deployment {deployment}")));
            }
            Script::Library { library, function } => {
                let name = match &library.scope {
                    Some((bucket, scope)) => format!("{bucket}/{scope}/{}", library.name),
                    None => library.name.to_string(),
                };
                let code = self.0.borrow().get(&name).cloned();
                (code.ok_or_else(|| failed(format!("no library {name}")))?, function.clone())
            }
        };
        let mut library = Library::load("functions/lib.js", &code, Box::new(HostQueries))
            .map_err(|error| failed(error.to_string()))?;
        let arguments: Vec<Vec<&RawValue>> = serde_json::from_str(arguments).unwrap();
        let arguments: Vec<_> =
            arguments.iter().map(|argument| argument.first().map(|json| json.get())).collect();
        Ok(library.call(&function, CallContext::default(), &arguments).to_json())
    }
}

/// A service with a store, and the bucket `default`.
pub struct World {
    pub libraries: Libraries,
    pub store: MemoryDatastore,
    pub service: Service,
    pub platform: TestPlatform,
}

pub fn keyspace(name: &str) -> Keyspace {
    Keyspace {
        namespace: "default".into(),
        bucket: "default".into(),
        scope: "_default".into(),
        collection: name.into(),
    }
}

impl World {
    pub fn new() -> World {
        let store = MemoryDatastore::new();
        store.add_collection(&keyspace("_default"));
        let libraries = Libraries::default();
        store.set_evaluator(Scripts(Rc::clone(&libraries)));
        World {
            libraries,
            store,
            service: Service::new(),
            platform: TestPlatform::with_patience(u64::MAX),
        }
    }

    /// Creates a world whose collection `d` has these documents and a primary index, and whose search service is `searcher`.
    pub fn searched_by(searcher: impl Searcher + 'static, documents: &[(&str, &str)]) -> World {
        let world = World::new();
        world.store.set_searcher(searcher);
        let parsed = |body: &str| Value::parse(body.as_bytes()).unwrap();
        world.add("d", documents.iter().map(|(id, body)| (*id, parsed(body))));
        world.query("CREATE PRIMARY INDEX ON d").unwrap();
        world
    }

    /// Creates a collection with documents.
    pub fn add<'a>(&self, name: &str, documents: impl IntoIterator<Item = (&'a str, Value)>) {
        self.store.add_collection(&keyspace(name));
        let mutations: Vec<Mutation> = documents
            .into_iter()
            .map(|(id, value)| Mutation {
                action: Action::Insert,
                id: Name::from(id),
                body: value.to_json().into_bytes(),
                expiration: None,
            })
            .collect();
        for result in self.store.mutate(&keyspace(name), &mutations).unwrap() {
            result.unwrap();
        }
    }

    pub fn request(statement: &str) -> Request {
        let mut request =
            Request::from_pairs([("query_context", "default:default._default")]).unwrap();
        request.statement = Some(statement.to_owned());
        request
    }

    pub fn run(&self, request: Request) -> Result<Vec<Value>> {
        let mut response = self.service.start(request, &self.store, &self.platform);
        let mut rows = Vec::new();
        while let Some(row) = response.next_row(&self.service, &self.store, &self.platform)? {
            rows.push(row);
        }
        Ok(rows)
    }

    pub fn query(&self, statement: &str) -> Result<Vec<Value>> {
        self.run(World::request(statement))
    }
}
