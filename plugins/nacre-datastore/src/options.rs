//! The options in `WITH {…}`. Unknown options are refused, because they would have no effect.

use nacre_sql::ast::CreateIndex;
use nacre_sql::index::Partitioning;
use nacre_sql::{Error, Result, SEMANTICS, Value};

/// The type of an option's value.
enum Kind {
    Truth,
    Number,
    Names,
    Text,
}

/// Options of CREATE INDEX. Source: SQL++ reference, CREATE INDEX. The size options serve a planner that places partitions by
/// size.
const OF_INDEX: [(&str, Kind); 9] = [
    ("defer_build", Kind::Truth),
    ("num_partition", Kind::Number),
    ("num_replica", Kind::Number),
    ("nodes", Kind::Names),
    ("secKeySize", Kind::Number),
    ("docKeySize", Kind::Number),
    ("arrSize", Kind::Number),
    ("numDoc", Kind::Number),
    ("residentRatio", Kind::Number),
];

/// Further options of indexes with a vector. Source: SQL++ reference, CREATE VECTOR INDEX. Those about training and lists have no effect:
/// the index chooses its lists by the number of vectors, and always keeps the vectors themselves.
const OF_VECTOR: [(&str, Kind); 6] = [
    ("dimension", Kind::Number),
    ("similarity", Kind::Text),
    ("description", Kind::Text),
    ("train_list", Kind::Number),
    ("scan_nprobes", Kind::Number),
    ("persist_full_vector", Kind::Truth),
];

/// Refuses unknown options of CREATE INDEX and values of a wrong type.
pub fn check_index(create: &CreateIndex) -> Result<()> {
    let of_vector = if create.vector.is_some() { &OF_VECTOR[..] } else { &[] };
    for (name, value) in create.with.as_object().into_iter().flatten() {
        let mut known = OF_INDEX.iter().chain(of_vector);
        let Some((_, kind)) = known.find(|(known, _)| **known == **name) else {
            return Err(Error::new(SEMANTICS, format!("CREATE INDEX has no option {name}")));
        };
        let (fits, wanted) = match kind {
            Kind::Truth => (matches!(value, Value::Bool(_)), "true or false"),
            Kind::Number => (matches!(value, Value::Int(_) | Value::Float(_)), "a number"),
            Kind::Names => (value.as_array().is_some(), "an array"),
            Kind::Text => (value.as_str().is_some(), "a text"),
        };
        if !fits {
            return Err(Error::new(SEMANTICS, format!("Option {name} is {wanted}, not {value}")));
        }
    }
    Ok(())
}

/// Returns the number of replicas of each partition that ALTER INDEX requests. Source: SQL++ reference, ALTER INDEX.
///
/// Moving partitions and dropping a single replica are refused: all nodes compute the placement, and replicas have no numbers.
pub fn altered_replicas(with: &Value) -> Result<u8> {
    let action = with.field("action");
    let message = match action.as_str() {
        Some("replica_count") if !with.field("num_replica").is_missing() => {
            return Partitioning::replicas_of(with);
        }
        Some("replica_count") => "Action replica_count needs num_replica".to_owned(),
        Some("move") => {
            "All nodes compute the places of partitions: partitions cannot be moved".to_owned()
        }
        Some("drop_replica") => {
            "Copies of an index have no numbers: action replica_count says how \
             many there are to be"
                .to_owned()
        }
        _ => format!("ALTER INDEX has no action {action}"),
    };
    Err(Error::new(SEMANTICS, message))
}
