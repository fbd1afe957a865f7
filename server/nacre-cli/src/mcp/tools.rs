//! The tools for agents, with their parameters.

use super::answer::Answer;
use super::calls;
use crate::failure::Failure;
use crate::target::Server;
use serde_json::{Map, Value, json};

/// Arguments of a call.
pub(super) type Arguments = Map<String, Value>;

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Count,
    List,
    Any,
}

/// A parameter of a tool.
#[derive(Debug)]
pub(super) struct Parameter {
    name: &'static str,
    kind: Type,
    is_required: bool,
    about: &'static str,
}

/// A tool.
#[derive(Debug)]
pub(super) struct ToolSpec {
    /// The name in the protocol.
    pub name: &'static str,
    about: &'static str,
    /// True if the tool changes documents.
    pub writes: bool,
    parameters: &'static [Parameter],
    /// Runs the tool.
    pub run: fn(&Server, &Arguments) -> Result<Answer, Failure>,
}

const fn required(name: &'static str, kind: Type, about: &'static str) -> Parameter {
    Parameter { name, kind, is_required: true, about }
}

const fn optional(name: &'static str, kind: Type, about: &'static str) -> Parameter {
    Parameter { name, kind, is_required: false, about }
}

const BUCKET: Parameter = required("bucket", Type::Text, "Name of the bucket");
const SCOPE: Parameter = optional("scope", Type::Text, "Name of the scope (default: _default)");
const COLLECTION: Parameter =
    optional("collection", Type::Text, "Name of the collection (default: _default)");
const ID: Parameter = required("id", Type::Text, "Key of the document");
const STATEMENT: Parameter = required("statement", Type::Text, "One statement of SQL++");
const ARGUMENTS: Parameter =
    optional("arguments", Type::List, "Values of the parameters $1, $2, … of the statement");
const CONTEXT: Parameter =
    optional("context", Type::Text, "bucket.scope, to which lone names of collections belong");

/// All tools.
pub(super) const TOOLS: &[ToolSpec] = &[
    ToolSpec {
        name: "cluster_status",
        about: "Show the nodes of the cluster, whether they are healthy, and the memory in use",
        writes: false,
        parameters: &[],
        run: calls::cluster_status,
    },
    ToolSpec {
        name: "list_keyspaces",
        about: "List buckets, scopes and collections that you may see",
        writes: false,
        parameters: &[],
        run: calls::list_keyspaces,
    },
    ToolSpec {
        name: "infer_schema",
        about: "Show the fields of the documents of a collection, with their types and examples, from a sample",
        writes: false,
        parameters: &[BUCKET, SCOPE, COLLECTION],
        run: calls::infer_schema,
    },
    ToolSpec {
        name: "sample_documents",
        about: "Show a few documents of a collection, with their keys",
        writes: false,
        parameters: &[
            BUCKET,
            SCOPE,
            COLLECTION,
            optional("prefix", Type::Text, "What keys begin with"),
            optional("limit", Type::Count, "Number of documents, 1 to 20 (default: 5)"),
        ],
        run: calls::sample_documents,
    },
    ToolSpec {
        name: "get_document",
        about: "Show a document by its key, with its version",
        writes: false,
        parameters: &[BUCKET, SCOPE, COLLECTION, ID],
        run: calls::get_document,
    },
    ToolSpec {
        name: "query",
        about: "Run a statement of SQL++ that reads. At most 200 rows are shown. Statements that write are refused",
        writes: false,
        parameters: &[STATEMENT, ARGUMENTS, CONTEXT],
        run: calls::query,
    },
    ToolSpec {
        name: "explain",
        about: "Show the plan of a statement of SQL++ without running it",
        writes: false,
        parameters: &[STATEMENT, CONTEXT],
        run: calls::explain,
    },
    ToolSpec {
        name: "list_indexes",
        about: "List the indexes for SQL++, with their keys and states",
        writes: false,
        parameters: &[],
        run: calls::list_indexes,
    },
    ToolSpec {
        name: "list_deployments",
        about: "List the deployed plugins, with their state and what they lag behind",
        writes: false,
        parameters: &[],
        run: calls::list_deployments,
    },
    ToolSpec {
        name: "slow_operations",
        about: "List operations and statements that took long at this node, with what took the time",
        writes: false,
        parameters: &[],
        run: calls::slow_operations,
    },
    ToolSpec {
        name: "put_document",
        about: "Store a document. With etag only if it still has that version",
        writes: true,
        parameters: &[
            BUCKET,
            SCOPE,
            COLLECTION,
            ID,
            required("document", Type::Any, "The document, as JSON"),
            optional("etag", Type::Text, "Version as get_document has shown it"),
        ],
        run: calls::put_document,
    },
    ToolSpec {
        name: "delete_document",
        about: "Remove a document that still has a version",
        writes: true,
        parameters: &[
            BUCKET,
            SCOPE,
            COLLECTION,
            ID,
            required("etag", Type::Text, "Version as get_document has shown it"),
        ],
        run: calls::delete_document,
    },
];

impl Type {
    fn schema(self) -> Value {
        match self {
            Type::Text => json!({"type": "string"}),
            Type::Count => json!({"type": "integer", "minimum": 1}),
            Type::List => json!({"type": "array"}),
            Type::Any => json!({}),
        }
    }

    fn takes(self, value: &Value) -> bool {
        match self {
            Type::Text => value.is_string(),
            Type::Count => value.as_u64().is_some_and(|count| count > 0),
            Type::List => value.is_array(),
            Type::Any => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Type::Text => "a string",
            Type::Count => "a number, 1 or more",
            Type::List => "an array",
            Type::Any => "JSON",
        }
    }
}

impl ToolSpec {
    /// Returns the tool's description in the form of the protocol.
    pub fn describe(&self) -> Value {
        let mut properties = Map::new();
        for parameter in self.parameters {
            let mut schema = parameter.kind.schema();
            schema["description"] = parameter.about.into();
            properties.insert(parameter.name.to_owned(), schema);
        }
        let required = self.parameters.iter().filter(|parameter| parameter.is_required);
        let required: Vec<&str> = required.map(|parameter| parameter.name).collect();
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        json!({
            "name": self.name,
            "description": self.about,
            "inputSchema": schema,
            "annotations": {
                "readOnlyHint": !self.writes,
                "destructiveHint": self.writes,
                "idempotentHint": !self.writes,
                "openWorldHint": false,
            },
        })
    }

    /// Refuses unknown arguments, missing ones, and those of a wrong type.
    pub fn check(&self, arguments: &Arguments) -> Result<(), String> {
        for parameter in self.parameters {
            match arguments.get(parameter.name) {
                None | Some(Value::Null)
                    if parameter.is_required && parameter.kind != Type::Any =>
                {
                    return Err(format!("the argument {} is missing", parameter.name));
                }
                None if parameter.is_required => {
                    return Err(format!("the argument {} is missing", parameter.name));
                }
                None | Some(Value::Null) => {}
                Some(value) if parameter.kind.takes(value) => {}
                Some(_) => {
                    let kind = parameter.kind.name();
                    return Err(format!("the argument {} must be {kind}", parameter.name));
                }
            }
        }
        let is_known = |name: &str| self.parameters.iter().any(|parameter| parameter.name == name);
        match arguments.keys().find(|name| !is_known(name)) {
            Some(name) => Err(format!("{} has no argument {name}", self.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn tool(name: &str) -> &'static ToolSpec {
        TOOLS.iter().find(|tool| tool.name == name).unwrap()
    }

    #[test]
    fn tools_have_unique_names_and_declare_whether_they_write() {
        let names: BTreeSet<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), TOOLS.len());
        let writing: Vec<&str> =
            TOOLS.iter().filter(|tool| tool.writes).map(|tool| tool.name).collect();
        assert_eq!(writing, ["put_document", "delete_document"]);
        for tool in TOOLS {
            let described = tool.describe();
            assert_eq!(described["annotations"]["readOnlyHint"], !tool.writes, "{}", tool.name);
            assert_eq!(described["inputSchema"]["additionalProperties"], false);
        }
    }

    #[test]
    fn arguments_are_checked_before_any_request() {
        let check = |name: &str, arguments: Value| {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            tool(name).check(&arguments)
        };
        assert_eq!(check("get_document", json!({"bucket": "b", "id": "i"})), Ok(()));
        assert_eq!(check("get_document", json!({"bucket": "b", "id": "i", "scope": null})), Ok(()));
        let put = |document| json!({"bucket": "b", "id": "i", "document": document});
        assert_eq!(check("put_document", put(json!(null))), Ok(()), "null is a document");
        for (name, arguments, reason) in [
            ("get_document", json!({"bucket": "b"}), "the argument id is missing"),
            (
                "get_document",
                json!({"bucket": 1, "id": "i"}),
                "the argument bucket must be a string",
            ),
            ("list_keyspaces", json!({"x": 1}), "list_keyspaces has no argument x"),
            (
                "sample_documents",
                json!({"bucket": "b", "limit": 0}),
                "the argument limit must be a number, 1 or more",
            ),
            ("put_document", json!({"bucket": "b", "id": "i"}), "the argument document is missing"),
        ] {
            assert_eq!(check(name, arguments), Err(reason.to_owned()));
        }
    }
}
