//! A request to several partitions has the same response as a request to one.

use crate::world::World;
use nacre_search::{Error, Partial, Request, merge, search};
use serde_json::{Value, json};

fn document(id: usize) -> Value {
    json!({
        "text": if id.is_multiple_of(2) { "even number" } else { "odd number" },
        "value": id,
        "group": format!("g{}", id % 5),
        "day": format!("2024-01-{:02}", id % 28 + 1),
    })
}

fn worlds(count: usize) -> Vec<World> {
    let mut worlds: Vec<World> = (0..count).map(|_| World::new(&Value::Null).unwrap()).collect();
    for id in 0..100 {
        let body = document(id).to_string();
        worlds[id % count].add([(&*format!("d{id:03}"), body.as_bytes())], 1);
    }
    worlds
}

fn ask(worlds: &[World], request: &Value) -> Value {
    let request = Request::parse(request.to_string().as_bytes()).unwrap();
    let partials = worlds
        .iter()
        .enumerate()
        .map(|(at, world)| {
            let partial = search(&world.index, &request, &mut || false);
            // The result crosses the network in serialised form.
            let partial = partial.map(|partial| {
                serde_json::from_slice::<Partial>(&serde_json::to_vec(&partial).unwrap()).unwrap()
            });
            (format!("p{at}"), partial)
        })
        .collect();
    merge(&request, partials).to_json(&request, 1)
}

/// Returns the parts of a response that do not depend on the distribution of documents.
fn essence(answer: &Value) -> Value {
    let hits: Vec<Value> = answer["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| json!([hit["id"], hit["sort"], hit["fields"]]))
        .collect();
    json!([hits, answer["total_hits"], answer["facets"]])
}

#[test]
fn partitions_together_answer_as_one() {
    let (one, three) = (worlds(1), worlds(3));
    let facets = json!({
        "groups": {"field": "group", "size": 3},
        "values": {"field": "value", "size": 5, "numeric_ranges": [{"name": "low", "max": 50}, {"name": "high", "min": 50}]},
        "days": {"field": "day", "size": 5, "date_ranges": [{"name": "first", "end": "2024-01-10"}]},
    });
    let requests = [
        json!({"query": {"match_all": {}}, "sort": ["_id"], "size": 7, "facets": facets}),
        json!({"query": {"match": "even"}, "sort": ["-value"], "size": 5, "from": 10, "fields": ["*"]}),
        json!({"query": {"match": "odd"}, "sort": ["group", "-value"], "size": 20}),
        json!({"query": {"min": 10, "max": 20}, "sort": ["_id"]}),
        json!({"query": {"field": "value", "min": 10, "max": 20}, "sort": ["day", "_id"]}),
        json!({"query": {"match_all": {}}, "sort": ["value"], "size": 4, "search_after": ["17"]}),
        json!({"query": {"match_all": {}}, "sort": ["value"], "size": 4, "search_before": ["17"]}),
    ];
    for request in requests {
        assert_eq!(essence(&ask(&one, &request)), essence(&ask(&three, &request)), "{request}");
    }
}

#[test]
fn pages_follow_one_another_without_gaps() {
    let worlds = worlds(3);
    let mut seen = Vec::new();
    let mut after: Option<Value> = None;
    loop {
        let mut request = json!({"query": {"match_all": {}}, "sort": ["group", "-_id"], "size": 9});
        if let Some(after) = &after {
            request["search_after"] = after.clone();
        }
        let answer = ask(&worlds, &request);
        let hits = answer["hits"].as_array().unwrap();
        let Some(last) = hits.last() else { break };
        after = Some(last["sort"].clone());
        seen.extend(crate::world::ids(&answer));
    }
    assert_eq!(seen.len(), 100);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 100);
}

#[test]
fn a_failed_partition_is_named_in_addition_to_the_hits_of_others() {
    let worlds = worlds(2);
    let request = Request::parse(br#"{"query": {"match_all": {}}}"#).unwrap();
    let partial = search(&worlds[0].index, &request, &mut || false);
    let late = Error { status: 504, text: "context deadline exceeded".into() };
    let response = merge(&request, vec![("p0".into(), partial), ("p1".into(), Err(late))]);
    assert!(response.refusal().is_none());
    let answer = response.to_json(&request, 1);
    assert_eq!(
        answer["status"],
        json!({"total": 2, "failed": 1, "successful": 1, "errors": {"p1": "context deadline exceeded"}})
    );
    assert_eq!(answer["total_hits"], 50);
}

#[test]
fn the_parts_of_several_nodes_are_one_partition_of_their_index() {
    // Clients of Couchbase compare the numbers with the partitions of the definition. An index has one, whatever the number of nodes.
    let worlds = worlds(3);
    let request = Request::parse(br#"{"query": {"match_all": {}}}"#).unwrap();
    let status = |names: [&str; 3], absent: &[&str]| {
        let part = |at: usize| search(&worlds[at].index, &request, &mut || false);
        let parts = names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), part(at)));
        let late = |name: &&str| {
            let text = "context deadline exceeded".to_owned();
            ((*name).to_owned(), Err(Error { status: 504, text }))
        };
        let parts = parts.chain(absent.iter().map(late)).collect();
        merge(&request, parts).to_json(&request, 1)["status"].clone()
    };
    let (one, other) = ("b.s.i_00112233445566aa_0a1b2c3d", "b.s.j_8899aabbccddeeff_01234567");
    assert_eq!(status([one; 3], &[]), json!({"total": 1, "failed": 0, "successful": 1}));
    let both = json!({"total": 2, "failed": 0, "successful": 2});
    assert_eq!(status([one, other, one], &[]), both, "an alias of two indexes");
    let late = "context deadline exceeded";
    assert_eq!(
        status([one, other, one], &["b.s.j@h:9", "b.s.j@h:10"]),
        json!({
            "total": 2, "failed": 1, "successful": 1,
            "errors": {"b.s.j@h:9": late, "b.s.j@h:10": late},
        })
    );
    let plain = ["b.s.i_x_y", "b.s.i_00112233445566aa", "i"];
    assert_eq!(status(plain, &[])["total"], 3, "names of another form are those of indexes");
}

#[test]
fn a_request_is_abandoned_at_its_timeout() {
    let mut world = World::new(&Value::Null).unwrap();
    let bodies: Vec<String> = (0..9000).map(|id| format!("d{id}")).collect();
    world.add(bodies.iter().map(|id| (&**id, &b"{\"a\": 1}"[..])), 10_000);
    let request = Request::parse(br#"{"query": {"match_all": {}}}"#).unwrap();
    let error = search(&world.index, &request, &mut || true).unwrap_err();
    assert_eq!((error.status, &*error.text), (504, "context deadline exceeded"));
}

#[test]
fn only_requested_vbuckets_are_searched_and_removed_ones_are_empty() {
    let mut world = worlds(1).remove(0);
    let count = |world: &World, vbuckets: Option<Vec<std::ops::RangeInclusive<u16>>>| {
        let mut request = Request::parse(br#"{"query": {"match_all": {}}}"#).unwrap();
        request.vbuckets = vbuckets;
        search(&world.index, &request, &mut || false).unwrap().total
    };
    let low = count(&world, Some(vec![0..=9, 11..=31]));
    let of_ten = count(&world, Some(vec![10..=10]));
    let high = count(&world, Some(vec![32..=1023]));
    assert!(low > 0 && of_ten > 0 && high > 0);
    assert_eq!(low + of_ten + high, 100);
    assert_eq!(world.index.count_without(&[10].into()).unwrap(), low + high);
    assert_eq!(world.index.remove_vbuckets(&[10].into()).unwrap(), of_ten);
    assert_eq!(count(&world, None), low + high);
    assert_eq!(world.index.remove_vbuckets(&[10].into()).unwrap(), 0);
}

#[test]
fn neighbours_are_ranked_over_all_partitions() {
    let params = json!({"mapping": {"default_mapping": {"properties": {"v": {"fields": [
        {"type": "vector", "dims": 2, "index": true},
    ]}}}}});
    let mut worlds: Vec<World> = (0..3).map(|_| World::new(&params).unwrap()).collect();
    for id in 0..30 {
        let body = json!({"v": [id, 0]}).to_string();
        // All near documents are in one partition.
        worlds[id / 10].add([(&*format!("d{id:02}"), body.as_bytes())], 1);
    }
    for world in &mut worlds {
        while world.index.merge(1000).unwrap() {}
    }
    let request =
        json!({"query": {"match_none": {}}, "knn": [{"field": "v", "vector": [4, 0], "k": 3}]});
    let request = Request::parse(request.to_string().as_bytes()).unwrap();
    let all =
        worlds.iter().map(|world| nacre_search::nearest(&world.index, &request).unwrap()).collect();
    let near = nacre_search::Nearest::merge(&request, all);
    let partials = worlds
        .iter()
        .map(|world| {
            (
                "p".to_owned(),
                nacre_search::search_with(&world.index, &request, &near, &mut || false),
            )
        })
        .collect();
    let answer = merge(&request, partials).to_json(&request, 1);
    assert_eq!(crate::world::ids(&answer), ["d04", "d03", "d05"]);
    assert_eq!(answer["total_hits"], 3);
}
