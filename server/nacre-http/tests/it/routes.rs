//! Lookup of requests: the route that answers, its parameters, and the answers to other requests.

use nacre_auth::{Keyspace, Privilege};
use nacre_http::{
    Access, BODY_BYTES_MAX, Caller, Lookup, Method, Parameters, Pattern, Route, Table,
};
use proptest::prelude::*;
use std::cell::RefCell;

const ADMIN: Access = Access::Cluster(Privilege::AdministerCluster);

const BUCKETS: &[Route<&str>] = &[
    Route::new(Method::Any, "/buckets/{bucket}/{rest...}", Access::Handler, "rest"),
    Route::new(Method::Get, "/buckets/{bucket}", Access::SightOfBucket, "describe"),
    Route::new(
        Method::Post,
        "/buckets/{bucket}",
        Access::Bucket(Privilege::AdministerBucket),
        "update",
    ),
    Route::new(Method::Get, "/buckets/default", Access::Login, "default"),
    Route::new(Method::Get, "/buckets", Access::Sight, "list"),
    Route::new(Method::Post, "/buckets", ADMIN, "create").with_body(1024),
];

const OTHERS: &[Route<&str>] = &[
    Route::new(Method::Get, "/", Access::Login, "root"),
    Route::new(Method::Put, "/settings", ADMIN, "write"),
    Route::new(Method::Get, "/settings", ADMIN, "read"),
];

fn table() -> Table<&'static str> {
    Table::new([BUCKETS, OTHERS])
}

fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|segment| !segment.is_empty()).collect()
}

fn answer(method: &str, path: &str) -> String {
    match table().find(method, &segments(path)) {
        Lookup::Found(found) => {
            let bucket = found.parameters.get("bucket").unwrap_or("-");
            format!("{} {bucket} {}", found.route.handler, found.parameters.rest().join("+"))
        }
        Lookup::OtherMethods(allow) => format!("405 {}", allow.as_str()),
        Lookup::NotFound => "404".to_owned(),
    }
}

#[test]
fn the_most_literal_route_answers_whatever_their_order() {
    for (method, path, expected) in [
        ("GET", "/", "root - "),
        ("GET", "/buckets", "list - "),
        ("GET", "/buckets/", "list - "),
        ("GET", "/buckets/default", "default - "),
        ("GET", "/buckets/travel", "describe travel "),
        ("POST", "/buckets/default", "update default "),
        ("DELETE", "/buckets/travel", "rest travel "),
        ("GET", "/buckets/travel/a/b", "rest travel a+b"),
        ("BREW", "/buckets/travel/a", "rest travel a"),
        ("GET", "/settings", "read - "),
        ("GET", "/bucket", "404"),
        ("GET", "/settings/more", "404"),
    ] {
        assert_eq!(answer(method, path), expected, "{method} {path}");
    }
}

#[test]
fn another_method_of_a_known_path_gets_the_allowed_ones() {
    assert_eq!(answer("DELETE", "/settings"), "405 GET, PUT");
    assert_eq!(answer("OPTIONS", "/settings"), "405 GET, PUT");
    // A route for GET does not answer HEAD: the server decides about HEAD.
    assert_eq!(answer("HEAD", "/settings"), "405 GET, PUT");
    assert_eq!(answer("get", "/settings"), "405 GET, PUT");
    assert_eq!(answer("PUT", "/buckets"), "405 GET, POST");
}

#[test]
fn a_parameter_takes_what_was_decoded_as_one_segment() {
    let table = table();
    let Lookup::Found(found) = table.find("GET", &["buckets", "a/b"]) else { panic!("no route") };
    assert_eq!(found.parameters.get("bucket"), Some("a/b"));
    assert_eq!(found.parameters.get("scope"), None);
}

#[test]
fn the_bound_of_a_body_is_that_of_its_route() {
    let bound = |method, path| match table().find(method, &segments(path)) {
        Lookup::Found(found) => found.route.body_bytes_max,
        _ => panic!("no route"),
    };
    assert_eq!(bound("POST", "/buckets"), 1024);
    assert_eq!(bound("PUT", "/settings"), BODY_BYTES_MAX);
}

/// Records every check, and refuses everything.
#[derive(Default)]
struct Stranger(RefCell<Vec<String>>);

impl Caller for Stranger {
    type Refusal = ();

    fn require(&self, privilege: Privilege, bucket: Option<&str>) -> Result<(), ()> {
        self.0.borrow_mut().push(format!("{privilege:?} {}", bucket.unwrap_or("cluster")));
        Err(())
    }

    fn require_sight(&self, place: Keyspace<'_>) -> Result<(), ()> {
        self.0.borrow_mut().push(format!("sight {}", place.bucket.unwrap_or("cluster")));
        Err(())
    }
}

#[test]
fn a_right_is_asked_of_the_user_on_the_bucket_of_the_path() {
    for (method, path, expected) in [
        ("GET", "/buckets/travel", Some("sight travel")),
        ("POST", "/buckets/travel", Some("AdministerBucket travel")),
        ("GET", "/buckets", Some("sight cluster")),
        ("POST", "/buckets", Some("AdministerCluster cluster")),
        ("GET", "/buckets/default", None),
        ("GET", "/buckets/travel/more", None),
    ] {
        let (table, path) = (table(), segments(path));
        let Lookup::Found(found) = table.find(method, &path) else { panic!("no route") };
        let stranger = Stranger::default();
        let checked = found.route.access.check(&stranger, &found.parameters);
        assert_eq!(checked.is_err(), expected.is_some(), "{method} {path:?}");
        assert_eq!(stranger.0.into_inner(), Vec::from_iter(expected), "{method} {path:?}");
    }
}

#[test]
fn the_list_of_endpoints_is_ordered_by_path() {
    let lines: Vec<String> = table()
        .routes()
        .iter()
        .map(|route| format!("{} {} | {}", route.method.name(), route.path, route.access))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    GET / | any login
    GET /buckets | any role
    POST /buckets | administer cluster
    GET /buckets/default | any login
    GET /buckets/{bucket} | any role in the bucket
    POST /buckets/{bucket} | administer bucket, in the bucket
    * /buckets/{bucket}/{rest...} | depends on the request
    GET /settings | administer cluster
    PUT /settings | administer cluster
    ");
}

#[test]
#[should_panic(expected = "GET /a/{other} is there twice")]
fn two_routes_for_one_request_are_refused() {
    const TWICE: &[Route<()>] = &[
        Route::new(Method::Get, "/a/{one}", Access::Login, ()),
        Route::new(Method::Get, "/a/{other}", Access::Login, ()),
    ];
    Table::new([TWICE]);
}

#[test]
#[should_panic(expected = "/buckets needs a right on {bucket}, which it does not name")]
fn a_right_on_a_bucket_that_the_path_does_not_name_is_refused() {
    const NAMELESS: &[Route<()>] =
        &[Route::new(Method::Get, "/buckets", Access::Bucket(Privilege::ReadData), ())];
    Table::new([NAMELESS]);
}

#[test]
fn malformed_patterns_are_refused() {
    for text in ["", "a", "/a//b", "/a/", "/{}", "/{...}", "/{a}/{a}", "/{a...}/b", "/a{b}", "/{a"]
    {
        assert!(std::panic::catch_unwind(|| Pattern::new(text)).is_err(), "{text}");
    }
    for text in ["/", "/a", "/a/{b}", "/a/{b}/{c...}", "/{a...}"] {
        assert_eq!(Pattern::new(text).to_string(), text);
    }
}

proptest! {
    #[test]
    fn a_rest_parameter_takes_all_remaining_segments_and_nothing_else(path in prop::collection::vec("[a-c]{0,2}", 0..6)) {
        let matched = Pattern::new("/a/{b}/{rest...}").matches(&path);
        let is_match = path.len() >= 2 && path[0] == "a";
        prop_assert_eq!(matched.is_some(), is_match);
        if let Some(parameters) = matched {
            prop_assert_eq!(parameters.get("b"), Some(path[1].as_str()));
            prop_assert_eq!(parameters.rest(), &path[2..]);
        }
    }

    #[test]
    fn exact_patterns_take_paths_of_their_length(path in prop::collection::vec("[a-c]", 0..4)) {
        let expected = (path.len() == 2 && path[1] == "b").then(|| path[0].clone());
        let matched = Pattern::new("/{a}/b").matches(&path);
        let found = matched.as_ref().and_then(|parameters: &Parameters<'_>| parameters.get("a"));
        prop_assert_eq!(found, expected.as_deref());
    }
}
