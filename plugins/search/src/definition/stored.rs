//! Stored definitions: earlier versions accepted some that this version refuses, and their indexes must still open.

use serde_json::{Map, Value};

/// The delimiter of a `hierarchy` filter without one.
const DELIMITER: &str = "/";

/// Adds the delimiter to `hierarchy` filters that have none.
pub fn add_delimiters(params: &mut Value) {
    let filters = params.pointer_mut("/mapping/analysis/token_filters");
    let filters = filters.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    for filter in filters.filter_map(Value::as_object_mut) {
        let is_hierarchy = filter.get("type").and_then(Value::as_str) == Some("hierarchy");
        if is_hierarchy && filter.get("delimiter").and_then(Value::as_str).is_none() {
            filter.insert("delimiter".into(), DELIMITER.into());
        }
    }
}

/// Removes all members about synonyms, which earlier versions ignored.
pub fn remove_synonyms(params: &mut Value) {
    let Some(mapping) = params.get_mut("mapping").and_then(Value::as_object_mut) else { return };
    mapping.remove("default_synonym_source");
    if let Some(analysis) = mapping.get_mut("analysis").and_then(Value::as_object_mut) {
        analysis.remove("synonym_sources");
    }
    if let Some(types) = mapping.get_mut("types").and_then(Value::as_object_mut) {
        types.values_mut().for_each(remove_from_document);
    }
    if let Some(default) = mapping.get_mut("default_mapping") {
        remove_from_document(default);
    }
}

fn remove_from_document(mapping: &mut Value) {
    let Some(members) = mapping.as_object_mut() else { return };
    members.remove("default_synonym_source");
    if let Some(fields) = members.get_mut("fields").and_then(Value::as_array_mut) {
        for field in fields.iter_mut().filter_map(Value::as_object_mut) {
            field.remove("synonym_source");
        }
    }
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(remove_from_document);
    }
}
