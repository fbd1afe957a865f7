//! Definitions that earlier versions accepted: their indexes open, and only new ones are refused.

use nacre_search::Definition;
use serde_json::{Value, json};

fn hierarchy() -> Value {
    let analyzer = json!({"type": "custom", "tokenizer": "single", "token_filters": ["f"]});
    json!({"analyzers": {"x": analyzer}, "token_filters": {"f": {"type": "hierarchy"}}})
}

fn terms(definition: &Definition, text: &str) -> Vec<String> {
    let tokens = definition.analyze("x", text).unwrap();
    tokens.into_iter().map(|token| token.term).collect()
}

#[test]
fn a_stored_hierarchy_without_a_delimiter_has_slashes() {
    let params = json!({"mapping": {"analysis": hierarchy()}});
    assert_eq!(
        Definition::parse(&params).unwrap_err().text,
        "ValidateIndex, Mapping err: must specify delimiter"
    );
    let definition = Definition::parse_stored(&params).unwrap();
    assert_eq!(terms(&definition, "a/b"), ["a", "a/b"]);
    let text = Value::from(params.to_string());
    assert_eq!(terms(&Definition::parse_stored(&text).unwrap(), "a/b"), ["a", "a/b"]);
}

#[test]
fn invalid_synonyms_of_a_stored_definition_have_no_effect() {
    let of = |sources: Value, field: Value, default: &str| {
        let mut analysis = hierarchy();
        analysis["synonym_sources"] = sources;
        let field = json!({"type": "text", "index": true, "synonym_source": field});
        let text = json!({"properties": {"t": {"fields": [field]}}});
        json!({
            "doc_config": {"mode": "scope.collection.type_field"},
            "mapping": {
                "default_mapping": {"enabled": false},
                "types": {"s.words": text},
                "analysis": analysis,
                "default_synonym_source": default,
            },
        })
    };
    let source = |collection: &str, analyzer: &str| json!({"en": {"collection": collection, "analyzer": analyzer}});
    for params in [
        of(json!({"en": {}}), Value::Null, ""),
        of(source("other", "nope"), Value::Null, ""),
        of(source("other", "en"), json!("none"), ""),
        of(source("other", "en"), Value::Null, "none"),
        of(source("words", "en"), Value::Null, "en"),
    ] {
        assert!(Definition::parse(&params).is_err(), "{params}");
        let definition = Definition::parse_stored(&params).unwrap();
        assert!(definition.mapping.synonyms.is_empty(), "{params}");
        assert_eq!(definition.mapping.synonym_source_of("t"), None, "{params}");
        assert_eq!(terms(&definition, "a/b"), ["a", "a/b"]);
    }
    let valid = Definition::parse_stored(&of(source("other", "en"), Value::Null, "en")).unwrap();
    assert_eq!(valid.mapping.synonym_source_of("t"), Some("en"), "valid synonyms stay");
}

#[test]
fn a_collection_of_synonyms_contains_no_texts() {
    let of = |collection: &str| {
        let sources = json!({"en": {"collection": collection, "analyzer": "en"}});
        json!({
            "doc_config": {"mode": "scope.collection.type_field"},
            "mapping": {
                "default_mapping": {"enabled": false},
                "types": {"s.words": {}},
                "analysis": {"synonym_sources": sources},
            },
        })
    };
    let error = Definition::parse(&of("words")).unwrap_err().text;
    assert!(error.starts_with("collection_utils: synonym collection: 'words'"), "{error}");
    assert!(Definition::parse(&of("other")).is_ok());
}

#[test]
fn other_errors_of_a_stored_definition_are_reported() {
    let params = json!({"mapping": {"default_analyzer": "nope", "default_synonym_source": "x"}});
    let error = Definition::parse_stored(&params).unwrap_err();
    assert_eq!(error, Definition::parse(&params).unwrap_err());
}
