//! Vector indexes: CREATE VECTOR INDEX, and CREATE INDEX with a VECTOR key. Indexes of the search service hold them; the store carries these
//! requests to it:
//!
//! | request | answer |
//! | --- | --- |
//! | `{"do": "vector_index", "bucket", "scope", "collection", "change": {"do": "create_vector", …}}` | `{"created": true}` or `{"exists": true}` |
//! | the same with `{"do": "drop_vector", "name"}` | `{"dropped": true}`, or `false` if no vector index has the name |
//! | `{"do": "vector_indexes"}` | `{"rows": [ROW, …]}`: rows of `system:indexes` |
//!
//! Without a search service, all answers are `{}`.

use crate::run::Run;
use nacre_datastore::Keyspace;
use nacre_sql::ast::{CreateIndex, Expr, Path, Statement};
use nacre_sql::index::Partitioning;
use nacre_sql::{Error, Name, Result, SEMANTICS, Value, any_in};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Code of a store that does not support a statement.
const UNSUPPORTED: u32 = 1001;
/// Code of an index that exists. Source: Couchbase's list of error codes.
const EXISTS: u32 = 4300;
/// Code of a failed evaluation. Source: Couchbase's list of error codes.
const EVALUATION: u32 = 5010;
/// Maximum number of dimensions. Source: Couchbase.
const DIMENSIONS_MAX: i64 = 4096;
/// Quantizations in a description. Source: SQL++ reference, CREATE VECTOR INDEX.
const QUANTIZATIONS: [&str; 6] = ["SQ4", "SQ6", "SQ8", "SQFP16", "FLAT", "RABITQ"];

/// Executes a statement about a vector index; returns false if it is about another index.
pub(crate) fn define(statement: &Statement, run: &Run<'_>) -> Result<bool> {
    match statement {
        Statement::CreateIndex(create) => match create.vector {
            Some(at) => create_index(create, at, run).map(|()| true),
            None => is_taken(create, run),
        },
        Statement::DropIndex { name, keyspace, primary: false, .. } => {
            let keyspace = Keyspace::of(keyspace, run.settings.context.as_ref())?;
            let name = Value::from(name.clone());
            let drop = Value::object([("do", Value::from("drop_vector")), ("name", name)]);
            Ok(change(&keyspace, drop, run)?.field("dropped").truth())
        }
        _ => Ok(false),
    }
}

/// Returns true if a vector index has the name of another index to create, and the statement allows that.
fn is_taken(create: &CreateIndex, run: &Run<'_>) -> Result<bool> {
    let Some(name) = &create.name else { return Ok(false) };
    let keyspace = Keyspace::of(&create.keyspace, run.settings.context.as_ref())?;
    let has_name = |row: &Value| row.field("name").as_str() == Some(&**name);
    let is_taken = rows(run).iter().any(|(_, row)| has_name(row) && is_of(row, &keyspace));
    if is_taken && !create.if_not_exists { Err(exists(name)) } else { Ok(is_taken) }
}

fn exists(name: &Name) -> Error {
    Error::new(EXISTS, format!("The index {name} already exists."))
}

/// Returns the names without those of vector indexes, which build themselves.
pub(crate) fn without_vectors(
    names: Vec<Expr>,
    keyspace: &Path,
    run: &Run<'_>,
) -> Result<Vec<Expr>> {
    let keyspace = Keyspace::of(keyspace, run.settings.context.as_ref())?;
    let rows = rows(run);
    let known: Vec<Value> = rows
        .iter()
        .filter(|(_, row)| is_of(row, &keyspace))
        .map(|(_, row)| row.field("name"))
        .collect();
    let is_vector = |name: &Expr| matches!(name, Expr::Literal(name) if known.contains(name));
    Ok(names.into_iter().filter(|name| !is_vector(name)).collect())
}

/// Returns the rows of `system:indexes` for vector indexes that the user may see.
pub(crate) fn rows(run: &Run<'_>) -> Vec<(Name, Value)> {
    // A dry run of a function may ask for nothing. The catalog then shows only other indexes.
    let answer = asked(&Value::object([("do", "vector_indexes".into())]), run);
    let rows = answer.unwrap_or_default().field("rows");
    let id = |row: &Value| Some(Name::from(row.field("id").as_str()?));
    let rows = rows.as_array().unwrap_or_default().iter();
    rows.filter_map(|row| Some((id(row)?, row.clone()))).collect()
}

/// Returns true if a row of `system:indexes` is of an index on a keyspace.
fn is_of(row: &Value, keyspace: &Keyspace) -> bool {
    let (bucket, scope, name) =
        (row.field("bucket_id"), row.field("scope_id"), row.field("keyspace_id"));
    match (bucket.as_str(), scope.as_str(), name.as_str()) {
        (Some(bucket), Some(scope), Some(name)) => {
            *bucket == *keyspace.bucket
                && *scope == *keyspace.scope
                && *name == *keyspace.collection
        }
        // A default collection has the name of its bucket.
        (_, _, Some(bucket)) => {
            *bucket == *keyspace.bucket
                && *keyspace.scope == *"_default"
                && *keyspace.collection == *"_default"
        }
        _ => false,
    }
}

fn asked(request: &Value, run: &Run<'_>) -> Result<Value> {
    match run.store.administer(request) {
        Err(error) if error.code == UNSUPPORTED => Ok(Value::object::<Name>([])),
        answer => answer,
    }
}

fn change(keyspace: &Keyspace, change: Value, run: &Run<'_>) -> Result<Value> {
    let request = Value::object([
        ("do", Value::from("vector_index")),
        ("bucket", keyspace.bucket.clone().into()),
        ("scope", keyspace.scope.clone().into()),
        ("collection", keyspace.collection.clone().into()),
        ("change", change),
    ]);
    asked(&request, run)
}

fn create_index(create: &CreateIndex, at: usize, run: &Run<'_>) -> Result<()> {
    let Some(name) = &create.name else {
        return Err(Error::new(SEMANTICS, "a vector index has a name"));
    };
    let (dimension, similarity) = options(&create.with)?;
    let (field, included) = fields(create, at)?;
    let replicas = Partitioning::replicas_of(&create.with)?;
    let keyspace = run.keyspace(&create.keyspace)?;
    let texts = |texts: BTreeSet<String>| -> Value {
        texts.into_iter().map(Value::from).collect::<Vec<_>>().into()
    };
    let request = Value::object([
        ("do", Value::from("create_vector")),
        ("name", name.clone().into()),
        ("field", field.into()),
        ("dimension", Value::Int(dimension)),
        ("similarity", similarity.into()),
        ("included", texts(included)),
        ("replicas", Value::Int(i64::from(replicas))),
        ("waits", Value::Bool(!create.with.field("defer_build").truth())),
        ("row", row(create, at)),
    ]);
    let mut is_known = false;
    for index in run.store.indexes(&keyspace)? {
        is_known |= run.service.definition(&index.definition)?.name == *name;
    }
    let answer = if is_known {
        Value::object([("exists", true.into())])
    } else {
        change(&keyspace, request, run)?
    };
    if answer.field("created").truth() || answer.field("exists").truth() && create.if_not_exists {
        return Ok(());
    }
    Err(match answer.field("exists").truth() {
        true => exists(name),
        false => {
            Error::new(EVALUATION, "Vector indexes need the search service, which no node has")
        }
    })
}

/// Returns what `system:indexes` shows of an index besides its name and place.
fn row(create: &CreateIndex, at: usize) -> Value {
    let list = |texts: Vec<String>| -> Value {
        texts.into_iter().map(Value::from).collect::<Vec<_>>().into()
    };
    let key = |(position, key): (usize, &nacre_sql::ast::IndexKey)| {
        if position == at { format!("{key} VECTOR") } else { key.to_string() }
    };
    let include: Vec<String> = create.include.iter().map(ToString::to_string).collect();
    let by: Vec<String> = create.partition.iter().map(ToString::to_string).collect();
    let condition = create.condition.as_ref().map(ToString::to_string);
    Value::object([
        ("index_key", list(create.keys.iter().enumerate().map(key).collect())),
        ("include", if include.is_empty() { Value::Missing } else { list(include) }),
        ("condition", condition.map_or(Value::Missing, Value::from)),
        (
            "partition",
            if by.is_empty() { Value::Missing } else { format!("HASH({})", by.join(", ")).into() },
        ),
        ("with", create.with.clone()),
    ])
}

/// Checks the options, and returns the dimension and the similarity of the search index.
fn options(with: &Value) -> Result<(i64, &'static str)> {
    let refused = |message: String| Err(Error::new(SEMANTICS, message));
    let dimension = with.field("dimension");
    if dimension.is_missing() {
        return refused("A vector index needs the option dimension".into());
    }
    let Some(dimension) = dimension.as_i64().filter(|given| (1..=DIMENSIONS_MAX).contains(given))
    else {
        return refused(format!("Option dimension is a number from 1 to {DIMENSIONS_MAX}"));
    };
    let similarity = with.field("similarity");
    let Some(name) = similarity.as_str() else {
        return refused("A vector index needs the option similarity".into());
    };
    let similarity = match name.to_ascii_uppercase().as_str() {
        "COSINE" => "cosine",
        "DOT" => "dot_product",
        "L2" | "L2_SQUARED" | "EUCLIDEAN" | "EUCLIDEAN_SQUARED" => "l2_norm",
        _ => {
            return refused(format!(
                "Option similarity is COSINE, DOT, L2, L2_SQUARED, EUCLIDEAN or EUCLIDEAN_SQUARED, not {name}"
            ));
        }
    };
    let description = with.field("description");
    if description.as_str().is_some_and(|text| !is_description(text)) {
        return refused(format!(
            "Option description is IVF with an optional number of lists, a comma and a quantization such as SQ8 or PQ32x8, not {description}"
        ));
    }
    Ok((dimension, similarity))
}

/// Returns true for `IVF,SQ8`, `IVF1024,PQ32x8` and the like.
fn is_description(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some((lists, codes)) = text.split_once(',') else { return false };
    let is_lists =
        lists.trim().strip_prefix("IVF").is_some_and(|count| count.is_empty() || is_number(count));
    let is_product = |codes: &str| {
        let parts = codes.strip_prefix("PQ").and_then(|rest| rest.split_once('X'));
        parts.is_some_and(|(count, bits)| is_number(count) && is_number(bits))
    };
    let codes = codes.trim();
    is_lists && (QUANTIZATIONS.contains(&codes) || is_product(codes))
}

/// Returns the path of the vector, and those of the fields that conditions may have.
fn fields(create: &CreateIndex, at: usize) -> Result<(String, BTreeSet<String>)> {
    let alias = create.keyspace.parts.last();
    let of = |expr: &Expr| {
        path(expr, alias).ok_or_else(|| {
            Error::new(SEMANTICS, format!("A vector index has fields only, not {expr}"))
        })
    };
    let mut vector = String::new();
    let mut included = BTreeSet::new();
    for (position, key) in create.keys.iter().enumerate() {
        if key.array.is_some() {
            return Err(Error::new(SEMANTICS, "A vector index has no array keys"));
        }
        if position == at {
            vector = of(&key.expr)?;
        } else {
            included.insert(of(&key.expr)?);
        }
    }
    for expr in &create.include {
        included.insert(of(expr)?);
    }
    if let Some(condition) = &create.condition {
        let unfit = |expr: &Expr| {
            matches!(
                expr,
                Expr::Subquery(_)
                    | Expr::Aggregate(_)
                    | Expr::Positional(_)
                    | Expr::Named(_)
                    | Expr::UserCall(..)
            )
        };
        if any_in(condition, &unfit) {
            let message = format!("An index cannot have this condition: {condition}");
            return Err(Error::new(SEMANTICS, message));
        }
        included.extend(paths_in(condition, alias));
    }
    included.remove(&vector);
    Ok((vector, included))
}

/// Returns the paths in a condition.
fn paths_in(condition: &Expr, alias: Option<&Name>) -> Vec<String> {
    let found = RefCell::new(BTreeSet::new());
    any_in(condition, &|expr| {
        found.borrow_mut().extend(path(expr, alias));
        false
    });
    let found = found.into_inner();
    let is_part = |path: &String| {
        let within = format!("{path}.");
        alias.is_some_and(|alias| **alias == **path)
            || found.iter().any(|other| other.starts_with(&within))
    };
    found.iter().filter(|path| !is_part(path)).cloned().collect()
}

/// Returns the path of an expression in the documents; `None` if it is no path that an index can have.
fn path(expr: &Expr, alias: Option<&Name>) -> Option<String> {
    let is_usable = |name: &Name| !name.is_empty() && !name.contains(['.', '\0']);
    match expr {
        Expr::Ident(name) if is_usable(name) => Some(name.to_string()),
        Expr::Field(of, name, false) if is_usable(name) => match &**of {
            Expr::Ident(first) if Some(first) == alias => Some(name.to_string()),
            of => Some(format!("{}.{name}", path(of, alias)?)),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_lists_and_a_quantization() {
        for text in ["IVF,SQ8", "IVF1024,SQ4", "ivf, pq32x8", "IVF,PQ8x4"] {
            assert!(is_description(text), "{text}");
        }
        for text in ["", "IVF", "SQ8", "HNSW,SQ8", "IVFx,SQ8", "IVF,SQ9", "IVF,PQ32", "IVF,PQx8"] {
            assert!(!is_description(text), "{text}");
        }
    }

    #[test]
    fn fields_are_those_of_keys_of_include_and_of_the_condition() {
        let of = |text: &str| match nacre_sql::parse(text) {
            Ok(Statement::CreateIndex(create)) => {
                let at = create.vector.unwrap();
                fields(&create, at).map(|(vector, all)| (vector, Vec::from_iter(all)))
            }
            other => panic!("{text}: {other:?}"),
        };
        let text =
            "CREATE VECTOR INDEX i ON b.s.c(v VECTOR) INCLUDE (a, o.p) WHERE c.x.y > 1 AND z = 2";
        let included = ["a", "o.p", "x.y", "z"].map(str::to_owned).to_vec();
        assert_eq!(of(text).unwrap(), ("v".to_owned(), included));
        let text = "CREATE INDEX i ON c(a, o.v VECTOR, b DESC)";
        assert_eq!(of(text).unwrap(), ("o.v".to_owned(), vec!["a".to_owned(), "b".to_owned()]));
        for text in [
            "CREATE INDEX i ON c(LOWER(a), v VECTOR)",
            "CREATE INDEX i ON c(DISTINCT ARRAY x FOR x IN xs END, v VECTOR)",
            "CREATE VECTOR INDEX i ON c(v[0] VECTOR)",
            "CREATE VECTOR INDEX i ON c(v VECTOR) WHERE a = $1",
        ] {
            assert_eq!(of(text).unwrap_err().code, SEMANTICS, "{text}");
        }
    }
}
