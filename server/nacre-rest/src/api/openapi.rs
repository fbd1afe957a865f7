//! The OpenAPI 3.1 description of the API, generated from the table of routes.
//!
//! Method, path, path parameters and privilege come from the row of a route. [`OPERATIONS`] adds what a row does not know, such as
//! the schema of a body. A test compares both lists, so that the description covers exactly the routes that exist.

use super::super::body::{Reply, reply};
use super::ROUTES;
use hyper::StatusCode;
use nacre_http::Method;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Schemas, parameters and authentication schemes.
const COMPONENTS: &str = include_str!("components.json");

/// Properties of an endpoint that the table of routes does not contain.
struct Operation {
    method: Method,
    /// End of the path. For documents, this is the part after the collection.
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// Query parameters and request headers, by the names of their components.
    parameters: &'static [&'static str],
    /// Schema of the body.
    body: Option<&'static str>,
    /// Status and schema of the answer; an empty name means that the answer has no body.
    answer: (u16, &'static str),
    /// Headers of the answer.
    headers: &'static [&'static str],
    /// Statuses of errors besides those of every request.
    errors: &'static [u16],
}

/// Statuses that every request can return.
const ERRORS: [u16; 4] = [401, 403, 421, 503];
const LIST: &[&str] = &["limit", "prefix", "after"];
const TAGGED: &[&str] = &["ETag"];

const fn read(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    schema: &'static str,
) -> Operation {
    Operation {
        method: Method::Get,
        path,
        id,
        summary,
        parameters: &[],
        body: None,
        answer: (200, schema),
        headers: &[],
        errors: &[],
    }
}

/// Endpoints by method and path. The endpoints for documents exist both for the default collection and for any
/// collection.
const OPERATIONS: &[Operation] = &[
    read("/api/v1", "about", "Show the version of the node", "About"),
    read("/api/v1/openapi.json", "openapi", "Show this description", "OpenApi"),
    read("/api/v1/buckets", "listBuckets", "List buckets, scopes and collections", "Buckets"),
    Operation {
        parameters: LIST,
        errors: &[400, 404],
        ..read("/documents", "listDocuments", "List documents, a page at a time", "Documents")
    },
    Operation {
        method: Method::Post,
        parameters: &["ttl"],
        body: Some("Document"),
        answer: (201, "Stored"),
        headers: &["ETag", "Location"],
        errors: &[400, 404, 408, 412, 413, 415],
        ..read("/documents", "createDocument", "Store a document under a new key", "")
    },
    Operation {
        parameters: &["ifNoneMatch"],
        headers: &["ETag", "Nacre-Expiry"],
        errors: &[400, 404],
        ..read("/documents/{id}", "getDocument", "Read a document", "Document")
    },
    Operation {
        method: Method::Head,
        parameters: &["ifNoneMatch"],
        headers: &["ETag", "Nacre-Expiry"],
        errors: &[400, 404],
        ..read("/documents/{id}", "headDocument", "Look whether there is a document", "")
    },
    Operation {
        method: Method::Put,
        parameters: &["ttl", "ifMatch", "ifNoneMatch"],
        body: Some("Document"),
        headers: TAGGED,
        errors: &[400, 404, 408, 412, 413, 415],
        ..read("/documents/{id}", "putDocument", "Store a document", "Stored")
    },
    Operation {
        method: Method::Delete,
        parameters: &["ifMatch"],
        answer: (204, ""),
        errors: &[400, 404, 412],
        ..read("/documents/{id}", "deleteDocument", "Remove a document", "")
    },
    read("/api/v1/tokens", "listTokens", "List your tokens", "Tokens"),
    Operation {
        method: Method::Post,
        body: Some("WantedToken"),
        answer: (201, "NewToken"),
        errors: &[400, 408, 413],
        ..read("/api/v1/tokens", "createToken", "Create a token for yourself", "")
    },
    Operation {
        method: Method::Delete,
        answer: (204, ""),
        errors: &[404],
        ..read("/api/v1/tokens/{token}", "revokeToken", "Revoke a token of yours", "")
    },
    Operation {
        errors: &[404],
        ..read("/api/v1/users/{user}/tokens", "listTokensOfUser", "List tokens of a user", "Tokens")
    },
    Operation {
        method: Method::Delete,
        answer: (204, ""),
        errors: &[404],
        ..read(
            "/api/v1/users/{user}/tokens/{token}",
            "revokeTokenOfUser",
            "Revoke a token of a user",
            "",
        )
    },
    read("/api/v1/settings/cors", "getCors", "Show whose web pages may use the API", "Cors"),
    Operation {
        method: Method::Put,
        body: Some("Cors"),
        errors: &[400, 408, 413],
        ..read("/api/v1/settings/cors", "putCors", "Set whose web pages may use the API", "Cors")
    },
    read(
        "/api/v1/slow-operations",
        "listSlowOperations",
        "List operations of this node that took long",
        "SlowOperations",
    ),
];

/// Prefixes of the paths of documents, for the default collection and for any collection, with the suffix of their
/// operation IDs.
const PLACES: [(&str, &str); 2] = [
    ("/api/v1/buckets/{bucket}", ""),
    ("/api/v1/buckets/{bucket}/scopes/{scope}/collections/{collection}", "InCollection"),
];

/// Splits a path of the table into the path that [`OPERATIONS`] has for it and the suffix of the operation's ID.
fn known_as(path: &'static str) -> (&'static str, &'static str) {
    let of_documents = |(place, suffix): &(&str, &'static str)| {
        let end = path.strip_prefix(*place)?;
        end.starts_with("/documents").then_some((end, *suffix))
    };
    PLACES.iter().find_map(of_documents).unwrap_or((path, ""))
}

/// Returns the description of a route's endpoint.
fn operation_of(method: Method, path: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.method == method && operation.path == path)
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// `GET /api/v1/openapi.json`.
pub(super) fn answer() -> Reply {
    reply(StatusCode::OK, "application/json", DOCUMENT.as_bytes())
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let (path, suffix) = known_as(route.path);
        let Some(operation) = operation_of(route.method, path) else { continue };
        let mut described = describe(operation, route.path, suffix);
        described["x-nacre-right"] = json!(route.access.to_string());
        let method = route.method.name().to_ascii_lowercase();
        paths.entry(route.path).or_insert_with(|| json!({}))[method] = described;
    }
    let components: Value = serde_json::from_str(COMPONENTS).expect("a file of the source is JSON");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "nacre",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Documents, tokens and settings of a nacre cluster over HTTP",
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "/", "description": "Management port of any node"}],
        "security": [{"password": []}, {"token": []}],
        "paths": paths,
        "components": components,
    })
}

fn describe(operation: &Operation, path: &str, suffix: &str) -> Value {
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let all = named.chain(operation.parameters.iter().copied());
    let parameters: Vec<Value> =
        all.map(|name| json!({"$ref": format!("#/components/parameters/{name}")})).collect();
    let mut described = json!({
        "operationId": format!("{}{suffix}", operation.id),
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses(operation),
    });
    if let Some(schema) = operation.body {
        described["requestBody"] = json!({"required": true, "content": content(schema)});
    }
    described
}

fn content(schema: &str) -> Value {
    json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}})
}

fn responses(operation: &Operation) -> Value {
    let (status, schema) = operation.answer;
    let headers: Map<String, Value> = operation
        .headers
        .iter()
        .map(|name| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")})))
        .collect();
    let mut answer = json!({"description": "Done"});
    if !schema.is_empty() {
        answer["content"] = content(schema);
    }
    if !headers.is_empty() {
        answer["headers"] = headers.into();
    }
    let mut responses = json!({status.to_string(): answer});
    let reads = matches!(operation.method, Method::Get | Method::Head);
    if reads && operation.parameters.contains(&"ifNoneMatch") {
        responses["304"] = json!({"description": "The document has this version still"});
    }
    for error in operation.errors.iter().chain(&ERRORS) {
        responses[error.to_string()] = json!({"$ref": "#/components/responses/Problem"});
    }
    responses
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_route_is_described_once_and_nothing_else_is() {
        let mut used = BTreeSet::new();
        for route in ROUTES {
            let (path, _) = known_as(route.path);
            let method = route.method.name();
            assert!(operation_of(route.method, path).is_some(), "{method} {}", route.path);
            used.insert((route.method, path));
        }
        let described: Vec<_> = OPERATIONS.iter().map(|known| (known.method, known.path)).collect();
        assert_eq!(described.len(), used.len(), "an endpoint is described twice, or is none");
        assert_eq!(described.into_iter().collect::<BTreeSet<_>>(), used);
    }

    #[test]
    fn references_lead_somewhere_and_ids_are_unique() {
        let document = document();
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 50);
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        let operations = document["paths"].as_object().unwrap().values();
        let ids = operations.flat_map(|path| path.as_object().unwrap().values());
        let ids: Vec<&str> = ids.map(|known| known["operationId"].as_str().unwrap()).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        assert_eq!(ids.len(), ROUTES.len());
    }

    fn collect(value: &Value, references: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                references.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| collect(member, references));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
            _ => {}
        }
    }
}
