//! The cluster map and everything the nodes agree on: buckets, scopes, collections, design documents.
