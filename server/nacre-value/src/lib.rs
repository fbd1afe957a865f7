//! JSON documents: validation, sub-document paths and operations, extended attributes.
